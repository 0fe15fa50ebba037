"""Agents in the user's own Python: how they are found, called, left, and how they fail."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from options import options_of
from pydantic_core import PydanticCustomError

from kindlm.agents import make_agent
from kindlm.agents.python_agent import Python, python_agent
from kindlm.agents.user_code import in_thread
from kindlm.errors import ErrorCode
from kindlm.ports import AgentReply, AgentRequest
from kindlm.suite import AgentTarget
from kindlm.transcript import Message, Role, ToolCall, ToolUse

SYSTEM = Message(Role.SYSTEM, "Be kind.")


@pytest.fixture
def module(tmp_path, request):
    """Write a module and return its name; what was imported from the folder is forgotten after."""
    name = f"agent_{abs(hash(request.node.nodeid))}"

    def write(source: str, file: str | None = None) -> str:
        path = tmp_path / (file or f"{name}.py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return name

    yield write
    for loaded, found in list(sys.modules.items()):
        if str(getattr(found, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[loaded]


@pytest.fixture
def talk(make, ask, tmp_path):
    """Send requests to an agent and return the results."""

    def talk(endpoint: str, *requests, **options):
        async def run():
            target = AgentTarget("mine", "python", endpoint, {}, options_of("python", options))
            async with make(target, tmp_path) as agent:
                return [await agent.send(request) for request in requests or [ask()]]

        return asyncio.run(run())

    return talk


@pytest.fixture
def refused(tmp_path, failure):
    from kindlm.agents import make_agent

    def refused(endpoint: str, **options):
        target = AgentTarget("mine", "python", endpoint, {}, options_of("python", options))
        return failure(make_agent(target, environ={}, root=tmp_path))

    return refused


@pytest.mark.parametrize(
    "source",
    [
        "async def agent(message): return f'You said {message}'",
        "agent = 'You said {}'.format",
        """
        def agent():
            return lambda message: f'You said {message}'
        """,
        """
        def agent():
            return lambda message="", history=None: f'You said {message}'
        """,
        """
        class agent:
            def __call__(self, **options): raise NotImplementedError
            def send(self, message): return f'You said {message}'
        """,
        """
        async def agent():
            async def answer(message): return f'You said {message}'
            return answer
        """,
        """
        class agent:
            async def __call__(self, message): return f'You said {message}'
        """,
        """
        class Shop:
            async def send(self, request): return f'You said {request.messages[-1].text}'
        agent = Shop()
        """,
        """
        class Shop:
            def __call__(self, prompt=None, *, limit=None): return f'You said {prompt}'
        agent = Shop()
        """,
        """
        from kindlm.ports import AgentRequest
        def agent(it: AgentRequest): return f'You said {it.messages[-1].text}'
        """,
        """
        from __future__ import annotations
        import kindlm.ports
        def agent(it: kindlm.ports.AgentRequest): return f'You said {it.messages[-1].text}'
        """,
    ],
)
def test_an_agent_may_be_written_in_many_ways(module, talk, success, source):
    (result,) = talk(f"{module(source)}:agent")
    assert success(result).text == "You said Hello"


def test_what_makes_an_agent_makes_one_for_each_conversation(module, talk, ask, success):
    name = module("""
        def make():
            heard = []
            def agent(message):
                heard.append(message)
                return " ".join(heard)
            return agent
    """)
    for _ in range(2):
        results = talk(f"{name}:make", ask("one"), ask("one", "two"))
        assert [success(result).text for result in results] == ["one", "one two"]


def test_a_value_is_read_as_json_would_hold_it(module, talk, success):
    name = module("""
        def agent(message):
            call = {"name": "refund", "arguments": {"ids": ("A1", "A2")}, "result": {1: ()}}
            return {"answer": "Done.", "tool_calls": (call,)}
    """)
    (result,) = talk(f"{name}:agent")
    refund = ToolCall("call_0", "refund", {"ids": ["A1", "A2"]})
    assert success(result).tool_uses == (ToolUse(refund, {"1": []}, "agent"),)


@pytest.mark.parametrize("said", [[{"message": "ok"}], {"foo": {"bar": "Tuesday"}}, 5])
def test_a_value_without_a_known_text_is_an_error(module, talk, failure, success, said):
    name = module(f"def agent(message): return {said!r}")
    (result,) = talk(f"{name}:agent")
    assert "kindlm found no answer text" in failure(result).message
    assert failure(result).message.endswith(json.dumps(said, separators=(",", ":")))
    (result,) = talk(f"{name}:agent", responsePath="$")
    assert json.loads(success(result).text) == said


def test_a_reply_of_ours_is_taken_as_it_is(module, talk, success):
    name = module("""
        from kindlm.ports import AgentReply
        def agent(message):
            return AgentReply(text="t", raw="r", latency_ms=7.0, warnings=("w",))
    """)
    (result,) = talk(f"{name}:agent")
    assert success(result) == AgentReply(text="t", raw="r", latency_ms=7.0, warnings=("w",))


@pytest.mark.parametrize(
    "counted",
    [
        "usage=Usage(10**20, 1)",
        "usage=Usage(1, -1)",
        "reported_cost_usd=-0.5",
        'reported_cost_usd=float("nan")',
    ],
)
def test_a_reply_of_ours_counts_only_what_can_be_added_up(module, talk, failure, counted):
    """A negative cost would make up for what others cost."""
    name = module(f"""
        from kindlm.ports import AgentReply
        from kindlm.transcript import Usage
        def agent(message):
            return AgentReply(text="t", raw="r", latency_ms=7.0, {counted})
    """)
    (result,) = talk(f"{name}:agent")
    assert "is wrong: " in failure(result).message


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ("text=None", "`AgentReply.text` is wrong"),
        ("text='t', reports_tools='no'", "`AgentReply.reports_tools` is wrong"),
        ("text='t', usage={'input_tokens': 1}", "`AgentReply.usage` is wrong"),
        ("text='t', tool_uses=[ToolUse(ToolCall('1', 'f', {}), object())]", "not valid JSON"),
        ("text='t', tool_uses=None", "`AgentReply.tool_uses` is wrong"),
        ("text='t', tool_uses=['f']", "`AgentReply.tool_uses.0` is wrong"),
    ],
)
def test_a_reply_of_ours_with_a_value_of_another_type_is_an_error_of_the_agent(
    module, talk, failure, fields, wrong
):
    """`reports_tools="no"` is true in Python, and would pass checks that forbid a tool."""
    name = module(f"""
        from kindlm.ports import AgentReply
        from kindlm.transcript import ToolCall, ToolUse
        def agent(message):
            return AgentReply(raw="r", latency_ms=7.0, {fields})
    """)
    (result,) = talk(f"{name}:agent")
    assert wrong in failure(result).message


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        ("'busy'", "`KindlmError` is wrong"),
        ("KindlmError('BUSY', 'Busy')", "`KindlmError.code` is wrong"),
        ("KindlmError(ErrorCode.PROVIDER_TIMEOUT, None)", "`KindlmError.message` is wrong"),
        (
            "KindlmError(ErrorCode.PROVIDER_TIMEOUT, 'Late', details={'retry_after': '5'})",
            "`KindlmError.details.retry_after` is wrong",
        ),
    ],
)
def test_an_invalid_error_of_ours_is_an_error_of_the_agent(module, talk, failure, error, wrong):
    name = module(f"""
        from kindlm.plugins import Err, ErrorCode, KindlmError
        def agent(message):
            return Err({error})
    """)
    (result,) = talk(f"{name}:agent")
    assert wrong in failure(result).message


def test_an_agent_of_the_whole_request_gets_the_system_text(module, talk, ask, success):
    name = module("def agent(request): return request.messages[0].text")
    (result,) = talk(f"{name}:agent", ask(SYSTEM, "Hello"))
    assert success(result).text == "Be kind."
    assert success(result).warnings == ()


@pytest.mark.parametrize("kind", ["", "a"])
def test_an_agent_that_holds_something_is_left(module, talk, tmp_path, kind):
    prefix = "async " if kind else ""
    name = module(f"""
        class Agent:
            {prefix}def __{kind}enter__(self): return self
            {prefix}def __{kind}exit__(self, *e): open({str(tmp_path / "left")!r}, "w").close()
            def send(self, message): return message
    """)
    talk(f"{name}:Agent")
    assert (tmp_path / "left").exists()


@pytest.mark.parametrize(
    "raised",
    [
        "SystemExit(3)",
        "StopIteration()",
        "TimeoutError('db')",
        "GeneratorExit()",
        "__import__('asyncio').CancelledError()",
    ],
)
@pytest.mark.parametrize("prefix", ["", "async "])
def test_no_exception_of_an_agent_gets_further(module, talk, failure, raised, prefix):
    name = module(f"{prefix}def agent(message): raise {raised}")
    (result,) = talk(f"{name}:agent")
    assert failure(result).code is ErrorCode.PROVIDER_API_ERROR


def test_an_error_without_a_readable_message_is_the_agents(module, talk, failure):
    name = module("""
        class Lost(Exception):
            def __str__(self): return self.order
        def agent(message): raise Lost
    """)
    (result,) = talk(f"{name}:agent")
    assert "raised Lost: <exception str() failed>" in failure(result).message


def test_an_error_without_a_message_is_named_by_its_class(module, talk, failure):
    name = module("def agent(message): raise TimeoutError")
    (result,) = talk(f"{name}:agent")
    assert failure(result).message.startswith("Agent 'mine' raised TimeoutError (")


@pytest.mark.parametrize("value", ["None", "object()", "float('nan')"])
def test_what_is_no_answer_is_an_error(module, talk, failure, value):
    (result,) = talk(f"{module(f'def agent(message): return {value}')}:agent")
    assert failure(result).code is ErrorCode.PROVIDER_API_ERROR
    assert "Return a text, or a dict" in failure(result).hint


def test_endless_pieces_are_an_error_that_says_so(module, talk, failure, monkeypatch):
    monkeypatch.setattr("kindlm.agents.user_code.MAX_EVENTS", 20)
    name = module("""
        def agent(message):
            while True: yield "a"
    """)
    (result,) = talk(f"{name}:agent")
    assert "cannot be used (it has more than 20 pieces)" in failure(result).message
    assert failure(result).hint == "Check whether the agent is caught in a loop"


def test_what_cannot_be_talked_to_is_an_error(module, talk, failure):
    (result,) = talk(f"{module('def agent(): return 5')}:agent")
    assert "builtins.int can't be called and has no method `send`" in failure(result).message
    assert "Write a function that takes a message" in failure(result).hint


def test_a_timeout_cancels_an_async_agent(module, talk, ask, failure, tmp_path):
    name = module(f"""
        import asyncio
        async def agent(message):
            try:
                await asyncio.sleep(600)
            finally:
                open({str(tmp_path / "cancelled")!r}, "w").close()
    """)
    (result,) = talk(f"{name}:agent", ask(timeout_s=0.2))
    error = failure(result)
    assert error.code is ErrorCode.PROVIDER_TIMEOUT
    assert not error.details["retryable"]  # it may have acted already
    assert (tmp_path / "cancelled").exists()


def test_a_thread_that_is_not_awaited_any_more_keeps_nothing_waiting(module, talk, ask, failure):
    name = module("""
        import threading
        gate, ended = threading.Event(), threading.Event()
        def agent(message):
            gate.wait(600)
            ended.set()
            return "late"
    """)
    (result,) = talk(f"{name}:agent", ask(timeout_s=0.2))
    error = failure(result)
    assert error.code is ErrorCode.PROVIDER_TIMEOUT
    assert not error.details["retryable"]  # it may have acted already
    left = [thread for thread in threading.enumerate() if thread.name == "kindlm-agent"]
    assert all(thread.daemon for thread in left)
    sys.modules[name].gate.set()
    # The thread stays, for other calls.
    assert sys.modules[name].ended.wait(20)


def test_a_call_that_is_given_up_before_it_begins_costs_no_thread():
    async def give_calls_up():
        for _ in range(300):
            call = asyncio.ensure_future(in_thread(str))
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        # A thread that had ended would never answer.
        calls = [in_thread(threading.current_thread) for _ in range(20)]
        return await asyncio.wait_for(asyncio.gather(*calls), 10)

    assert all(thread.is_alive() for thread in asyncio.run(give_calls_up()))


def test_many_sync_agents_run_at_once(module, make, ask, success, tmp_path):
    name = module("""
        import threading
        all_here = threading.Barrier(40)
        def agent(message):
            all_here.wait(60)
            return message
    """)
    target = AgentTarget("mine", "python", f"{name}:agent")

    async def one():
        async with make(target, tmp_path) as agent:
            return await agent.send(ask())

    async def run():
        return await asyncio.gather(*(one() for _ in range(40)))

    assert {success(result).text for result in asyncio.run(run())} == {"Hello"}


def test_the_folder_is_importable_while_needed_and_no_longer(module, talk, success, tmp_path):
    module("WORD = 'later'", "helper_of_agent.py")
    name = module("""
        def agent(message):
            from helper_of_agent import WORD
            return WORD
    """)
    before = list(sys.path)
    (result,) = talk(f"{name}:agent")
    assert success(result).text == "later"
    assert sys.path == before


def test_an_agent_beside_its_file_may_use_what_is_in_the_root(module, make, ask, success, tmp_path):
    module("WORD = 'from the root'", "helper_in_root.py")
    module("from helper_in_root import WORD\nagent = lambda m: WORD", "suites/agent_beside.py")
    target = AgentTarget("mine", "python", "agent_beside:agent", directory=str(tmp_path / "suites"))

    async def run():
        async with make(target, tmp_path) as agent:
            return await agent.send(ask())

    assert success(asyncio.run(run())).text == "from the root"


@pytest.mark.parametrize("endpoint", ["agent.py", "a b:c", ":agent", "agent:1"])
def test_an_endpoint_must_be_a_dotted_name(endpoint):
    with pytest.raises(PydanticCustomError) as refused:
        Python.check_endpoint(endpoint)
    assert "package.module:function" in refused.value.context["hint"]


def test_what_cannot_be_imported_is_reported_with_the_reason(module, refused):
    name = module("import no_such_module_anywhere\ndef agent(m): return m")
    error = refused(f"{name}:agent")
    assert error.code is ErrorCode.CONFIG_VALIDATION_ERROR
    assert "no_such_module_anywhere" in error.message
    assert f"nor installed for {sys.executable}" in error.hint
    adk = module("from google.adk.no_such import Agent\nimport google.adk\ndef agent(m): return m")
    assert "Install its package" in refused(f"{adk}:agent").hint
    assert "Traceback" in error.trace
    assert "nothing" in refused(f"{module('x = 1')}_:nothing").message


def test_an_exception_is_shown_with_the_last_line_of_the_users_own(module, talk, failure, tmp_path):
    name = module(
        """
        import json

        def parse(text):
            return json.loads(text)

        def agent(message):
            return parse(message)
        """
    )
    (result,) = talk(f"{name}:agent")
    error = failure(result)
    assert f"({tmp_path / name}.py:5)" in error.message
    first = error.trace.splitlines()[1]
    assert f"{name}.py" in first, error.trace


def test_an_error_that_is_its_own_cause_is_shown(module, talk, failure):
    name = module(
        """
        def agent(message):
            raised = ValueError("rate limit")
            raised.__cause__ = raised
            raise raised
        """
    )
    (result,) = talk(f"{name}:agent")
    assert "raised ValueError: rate limit (" in failure(result).message
    assert f"{name}.py:5)" in failure(result).message


def test_an_import_error_is_shown_with_the_line_of_the_users_own(module, failure, tmp_path):
    name = module("\nimport json\njson.loads('no')\nagent = str\n")
    target = AgentTarget("mine", "python", f"{name}:agent")
    error = failure(make_agent(target, environ={}, root=tmp_path))
    assert f"({tmp_path / name}.py:3)" in error.message
    assert "importlib" not in error.trace.splitlines()[1]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_latency_of_the_first_reply_leaves_out_how_the_agent_is_made(
    module, talk, success, monkeypatch
):
    monkeypatch.setattr("kindlm.agents.python_agent.time.perf_counter", Clock())
    name = module(
        """
        import time

        class Agent:
            def __init__(self):
                time.perf_counter.now += 60
            def send(self, message):
                time.perf_counter.now += 2
                return "hi"
        """
    )
    (result,) = talk(f"{name}:Agent")
    assert success(result).latency_ms == 2000


def test_a_client_of_another_event_loop_is_an_error_with_the_way_out(module, talk, failure):
    name = module("""
        def agent(message):
            raise OSError("model failed: Event loop is closed")
    """)
    (result,) = talk(f"{name}:agent")
    assert "Make the function async" in failure(result).hint


def test_waiting_for_an_agent_that_others_talk_to_takes_no_time_of_the_answer() -> None:
    class TaskRunner:
        async def save_state(self):
            return {}

        async def load_state(self, state):
            pass

        async def run_stream(self, task):
            if task == "first":
                await asyncio.sleep(0.2)  # more than the second may take
            yield BaseChatMessage()

    class BaseMessage:
        pass

    class BaseChatMessage(BaseMessage):
        type, models_usage = "TextMessage", None

        def to_text(self):
            return "Done."

    for known in (TaskRunner, BaseMessage, BaseChatMessage):
        known.__module__ = "autogen_agentchat"
    shared = TaskRunner()

    async def talk(text: str, timeout_s: float):
        target = AgentTarget("shop", "python", "", instance=shared)
        async with python_agent(target, Path()) as agent:
            return await agent.send(AgentRequest(text, (Message(Role.USER, text),), timeout_s))

    async def both():
        return await asyncio.gather(talk("first", 20), talk("second", 0.1))

    first, second = asyncio.run(both())
    assert (first.value.text, second.value.text) == ("Done.", "Done.")
