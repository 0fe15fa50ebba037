"""Python agents in processes of their own: one that ends its process ends nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import textwrap

import pytest
from processes import assert_ended

from kindlm.agents import make_agent, python_processes
from kindlm.agents.python_processes import PrintedOutput, PythonProcesses
from kindlm.dataclass import replace
from kindlm.errors import ErrorCode, Ok
from kindlm.ports import AgentRequest
from kindlm.suite import AgentTarget
from kindlm.transcript import Message, Role, ToolCall, ToolUse, Usage
from kindlm_store import Redactor

SECRET = "s3cr3t-of-the-shop"
REDACT = Redactor({SECRET})

AGENTS = """
    import asyncio, ctypes, os, signal, sys, threading, time
    from kindlm.ports import AgentReply
    from kindlm.transcript import ToolCall, ToolUse, Usage

    calls = 0

    def count(message):
        global calls
        calls += 1
        return f"{os.getpid()} {calls}"

    def make():
        heard = []
        def agent(message):
            heard.append(message)
            return " ".join(heard)
        return agent

    def echo(request): return request.messages[0].text + "|" + request.messages[-1].text
    def whole(request): return globals()[request.messages[-1].text](request)
    def one_of(message): return globals()[message](message)
    async def one_of_async(message): return await globals()[message](message)
    def crash(message): ctypes.string_at(0)
    def interrupt(message): raise KeyboardInterrupt
    def close(message): os.closerange(3, 100)
    def talk(message):
        for piece in (b"key s3cr3t-of", b"-the-shop and\\nabout s3cr3t-of", b"-the-shop"):
            os.write(2, piece)
            time.sleep(0.05)
        os.write(1, b"x" * 70_000 + b"s3cr3t-of-the-shop" * 2 + b"y" * 8_180)
        os.write(1, b"s3cr3t-of-the-shop\\nthe end")
        raise MemoryError(os.environ["SHOP"])
    def exotic(message): raise BaseException("odd")
    def cancels(message): raise asyncio.CancelledError
    async def cancels_async(message): raise asyncio.CancelledError
    async def interrupt_async(message): raise KeyboardInterrupt
    async def count_async(message): return count(message)
    def last_words(message):
        print("\\x1b[31mno more memory")
        os._exit(7)
    def sleep(message):
        write_pid()
        threading.Event().wait(600)
    def write_pid():
        with open("pid", "w") as file:
            file.write(str(os.getpid()))
    async def block(message):
        write_pid()
        while True:
            pass
    async def cancelled(message):
        try:
            await asyncio.sleep(600)
        finally:
            open("cancelled", "w").close()
    def reply(message):
        use = ToolUse(ToolCall("c", "pay", {"n": 1}), {"ok": [True, None]}, "agent")
        return AgentReply("t", "r", 7.0, (use,), Usage(3, None), 0.5, "m", ("w",))
    def hostile(message): return AgentReply("t", "r", 7.0, (ToolUse(
        ToolCall("c", "pay", {}), object(), "agent"),))
    def wrong(message): return AgentReply(None, "r", 7.0)
    def surrogate(message): return "\\ud800"
    def variable(message): return os.environ.get("SHOP", "none")
    def forks(message):
        return f"{message} {os.fork()}"
    async def forks_in_the_loop(message):
        return forks(message)
    def daemon(message):
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)

    class Held:
        def __enter__(self): return self
        def __exit__(self, *e): open("left", "w").close()
        def send(self, message): return message

    class LeavesHard(Held):
        def __exit__(self, *e):
            super().__exit__(*e)
            os._exit(0)
"""


def write_agents(folder):
    (folder / "workers_agents.py").write_text(textwrap.dedent(AGENTS))
    (folder / "json.py").write_text("raise RuntimeError('not mine to import')")


@pytest.fixture
def root(tmp_path, monkeypatch):
    write_agents(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hold(talks, root, environ=None):
    """Hold conversations one after another, each a list of requests; return all results."""

    async def run():
        results = []
        async with PythonProcesses({**os.environ, **(environ or {})}, root, REDACT) as processes:
            for name, *requests in talks:
                target = AgentTarget(name, "python", f"workers_agents:{name}")
                made = make_agent(target, environ={}, root=root, processes=processes)
                assert isinstance(made, Ok)
                async with made.value as agent:
                    results += [await agent.send(request) for request in requests or [asking()]]
        return results

    return asyncio.run(run())


def asking(text="Hello"):
    return AgentRequest("conv-1", (Message(Role.USER, text),), 20.0)


@pytest.fixture
def converse(root):
    return lambda *talks, environ=None: hold(talks, root, environ)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What functions return, by their names: all of them in one process, which takes its time."""
    folder = tmp_path_factory.mktemp("agents")
    write_agents(folder)
    names = ("reply", "hostile", "wrong", "surrogate", "variable")
    asked = [asking(name) for name in names]
    system = Message(Role.SYSTEM, "Be \ud800 kind.\n")
    asked.append(replace(asking("echo"), messages=(system, Message(Role.USER, "echo"))))
    with contextlib.chdir(folder):
        talks = [("whole", each) for each in asked]
        return dict(zip((*names, "echo"), hold(talks, folder, {"SHOP": "acme"}), strict=True))


def test_conversations_have_agents_of_their_own_and_share_what_is_imported(converse, ask, success):
    results = converse(
        ("count",), ("count",), ("make", ask("one"), ask("one", "two")), ("make", ask("three"))
    )
    first, second, *texts = [success(result).text for result in results]
    assert first.split()[0] == second.split()[0] != str(os.getpid())
    assert (first.split()[1], second.split()[1]) == ("1", "2")
    assert texts == ["one", "one two", "three"]
    assert "workers_agents" not in sys.modules


@pytest.mark.parametrize("agent", ["forks", "forks_in_the_loop"])
def test_a_fork_that_comes_back_answers_nothing(converse, success, agent):
    asked = [replace(asking(text), timeout_s=3.0) for text in ("one", "two", "three")]
    answers = [success(result).text.split() for result in converse((agent, *asked))]
    assert [text for text, _ in answers] == ["one", "two", "three"]
    assert_ended([int(fork) for _, fork in answers])


def test_requests_arrive_whole(said, success):
    assert success(said["echo"]).text == "Be \ud800 kind.\n|echo"


def test_replies_arrive_whole(said, success):
    reply = success(said["reply"])
    assert reply.tool_uses == (
        ToolUse(ToolCall("c", "pay", {"n": 1}), {"ok": [True, None]}, "agent"),
    )
    assert (reply.text, reply.raw, reply.latency_ms) == ("t", "r", 7.0)
    assert (reply.usage, reply.reported_cost_usd, reply.model) == (Usage(3), 0.5, "m")
    assert reply.warnings == ("w",)


def test_an_agent_that_ends_its_process_is_an_error_and_the_next_goes_on(
    converse, success, failure, impatient, capsys
):
    ends = {
        "last_words": "exit code 7 before it answered: [31mno more",
        "crash": "SIGSEGV",
        "daemon": "exit code 0",
    }
    *ended, after = converse(*((name,) for name in ends), ("count",))
    for (name, how), result in zip(ends.items(), ended, strict=True):
        error = failure(result)
        assert error.code is ErrorCode.PROVIDER_API_ERROR
        assert f"'{name}'" in error.message
        assert how in error.message
        assert error.details["retryable"] is False
        assert "\x1b" not in error.message
    assert success(after).text.endswith(" 1")
    assert "no more" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["sleep", "block"])
def test_an_agent_that_took_too_long_runs_on_in_no_process(
    converse, ask, failure, name, monkeypatch, impatient, root
):
    # The process itself keeps to the time, unless its event loop is held up.
    monkeypatch.setattr(python_processes, "GRACE_S", 2.0 if name == "sleep" else 0.1)
    (late,) = converse((name, ask(timeout_s=0.2)))
    assert failure(late).code is ErrorCode.PROVIDER_TIMEOUT
    assert_ended([int((root / "pid").read_text())])


def test_a_timeout_cancels_an_async_agent(converse, ask, failure, root):
    (late,) = converse(("cancelled", ask(timeout_s=0.5)))
    assert failure(late).code is ErrorCode.PROVIDER_TIMEOUT
    assert (root / "cancelled").exists()


def test_a_cancelled_conversation_ends_what_the_agent_does(root, ask):
    async def run():
        async with PythonProcesses(os.environ, root, REDACT) as processes:
            target = AgentTarget("a", "python", "workers_agents:cancelled")
            with pytest.raises(TimeoutError):
                async with processes.agent(target) as agent, asyncio.timeout(0.5):
                    await agent.send(ask(timeout_s=600))

    asyncio.run(run())
    assert (root / "cancelled").exists()


@pytest.mark.parametrize(("name", "told"), [("hostile", "JSON"), ("wrong", "text")])
def test_a_reply_that_cannot_be_one_is_an_error(said, failure, name, told):
    error = failure(said[name])
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert told in error.message


def test_a_lone_surrogate_survives(said, success):
    assert success(said["surrogate"]).text == "\ud800"


def test_the_environment_is_that_of_the_run(said, success):
    assert success(said["variable"]).text == "acme"


def test_an_agent_is_left_and_may_end_its_process_then(converse, success, caplog, root):
    (said,) = converse(("LeavesHard",))
    assert success(said).text == "Hello"
    assert (root / "left").exists()
    assert "'LeavesHard'" in caplog.text


def test_a_process_that_ended_between_conversations_harms_none(root, ask, success):
    async def run():
        async with PythonProcesses(os.environ, root, REDACT) as processes:
            target = AgentTarget("a", "python", "workers_agents:count")
            texts = []
            for _ in range(2):
                async with processes.agent(target) as agent:
                    texts.append(success(await agent.send(ask())).text)
                pid = int(texts[-1].split()[0])
                os.kill(pid, signal.SIGKILL)
            return texts

    first, second = asyncio.run(run())
    assert first.split()[0] != second.split()[0]


def test_an_agent_with_variables_of_its_own_shares_its_process_with_none(root, ask, success):
    async def run():
        async with PythonProcesses(os.environ, root, REDACT) as processes:
            texts = []
            for shop in ("one", "two"):
                target = AgentTarget("a", "python", "workers_agents:variable")
                async with processes.agent(target, {"SHOP": shop}) as agent:
                    texts.append(success(await agent.send(ask())).text)
            return texts

    assert asyncio.run(run()) == ["one", "two"]


def test_a_line_without_an_end_is_shown_at_the_end_without_secrets(capsys):
    printed = PrintedOutput(REDACT)
    text = (SECRET + "." * 977) * 200
    for at in range(0, len(text), 1000):
        printed.add(text[at : at + 1000].encode())
    printed.finish()
    assert capsys.readouterr().err == REDACT(text)


def test_no_secret_is_shown_of_what_an_agent_prints(converse, failure, capfd):
    error = failure(converse(("talk",), environ={"SHOP": SECRET})[0])
    assert "MemoryError" in error.message
    shown = capfd.readouterr().err
    assert "key [redacted] and" in shown
    assert shown.endswith("the end")
    assert "s3cr3t" not in shown
    assert "-of-the-shop" not in shown


@pytest.mark.parametrize(
    ("agent", "names"),
    [
        ("one_of", ["exotic", "interrupt", "cancels", "count"]),
        ("one_of_async", ["interrupt_async", "cancels_async", "count_async"]),
    ],
)
def test_whatever_an_agent_raises_is_reported_as_it_is(
    converse, ask, failure, success, capfd, agent, names
):
    *raised, after = converse(*((agent, ask(name)) for name in names))
    for result in raised:
        error = failure(result)
        assert error.code is ErrorCode.PROVIDER_API_ERROR
        assert "raised" in error.message
    # The process goes on: its agents have counted nothing before.
    assert success(after).text.endswith(" 1")
    assert "Traceback" not in capfd.readouterr().err


def test_an_agent_that_closes_the_connection_leaves_no_trace_of_ours(converse, ask, failure, capfd):
    (closed,) = converse(("close", ask(timeout_s=0.5)))
    error = failure(closed)
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert "'close'" in error.message
    assert error.details["retryable"] is False
    assert "closes" in error.hint
    assert "Traceback" not in capfd.readouterr().err
