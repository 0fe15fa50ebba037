"""Programs as agents: what they print, how they end, and that nothing of them stays behind."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from functools import partial

import pytest
from processes import assert_ended, is_written, started_pids, time_passes_after

from kindlm.agents.command import printed_reply
from kindlm.errors import ErrorCode
from kindlm.suite import Command
from kindlm.transcript import ToolCall, ToolUse


@pytest.fixture
def run(make, ask, tmp_path):
    """Run a Python program as an agent and return the result of one message.

    One that `hangs` runs out of its 600 seconds once it has written the file of that name.
    """

    def run(program: str, *arguments: str, hangs: str | None = None, environ=None):
        (tmp_path / "agent.py").write_text(textwrap.dedent(program))
        words = ("python", "agent.py", *arguments)
        command = Command(words, str(tmp_path))

        async def talk():
            environment = environ or {"PATH": os.environ["PATH"]}
            has_come = partial(is_written, tmp_path / hangs) if hangs else None
            async with make(command, **environment) as agent, time_passes_after(has_come):
                return await agent.send(ask("ignored", timeout_s=600 if hangs else 60))

        return asyncio.run(talk())

    return run


def test_what_is_printed_is_the_answer(run, success):
    reply = success(run("print('Order A1 is refunded.')\nprint('Anything else?')"))
    assert reply.text == "Order A1 is refunded.\nAnything else?"
    assert reply.tool_uses == ()
    assert reply.latency_ms > 0


def test_tool_calls_are_reported_in_lines_of_their_own(run, success):
    program = """
        import json
        print("Let me see.")
        print(json.dumps({"kindlm": "tool_call", "name": "lookup",
                          "arguments": {"id": "A1"}, "response": 0}))
        print(json.dumps({"kindlm": "tool_call", "id": "mine", "name": "refund"}))
        print("Done.")
    """
    reply = success(run(program))
    assert reply.text == "Let me see.\nDone."
    assert reply.tool_uses == (
        ToolUse(ToolCall("cmd_tc_0", "lookup", {"id": "A1"}), 0, "agent"),
        ToolUse(ToolCall("mine", "refund", {}), None, "agent"),
    )
    assert '"kindlm"' in reply.raw


def test_text_beside_a_json_answer_is_reported(run, success):
    reply = success(run("""print('hm'); print('{"kindlm": "output_json", "value": null}')"""))
    assert reply.text == "null"
    assert "output_json" in reply.warnings[0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"kindlm": "tool_cal", "name": "refund"}', "'tool_call' or 'output_json'"),
        ('{"kindlm": "tool_call", "name": "refund", "KINDLM": 1}', "has the keys"),
        ("{'KINDLM': 'tool_call', 'name': 'refund'}", "one complete"),
        ('{"kindlm": "tool_call"}', "has the keys"),
        ('{"kindlm": "tool_call", "name": ""}', "has the keys"),
        ('{"kindlm": "tool_call", "name": ["refund"]}', "has the keys"),
        ('{"kindlm": "tool_call", "name": "refund", "id": 7}', "has the keys"),
        ('{"kindlm": "tool_call", "name": "refund", "args": {}}', "has the keys"),
        ('{"kindlm": "tool_call", "na', "one complete"),
        ('INFO {"kindlm": "tool_call", "name": "refund"}', "one complete"),
        ("{'kindlm': 'tool_call', 'name': 'refund'}", "one complete"),
        (r'"{\"kindlm\": \"tool_call\", \"name\": \"refund\"}"', "one complete"),
        ('{"log": {"kindlm": "tool_call", "name": "refund"}}', "one complete"),
        ('{"KindLM": "tool_call", "name": "refund"}', "one complete"),
        ('{ "kin', "one complete"),
        ('{"kindlm": "output_json", "value": 1, "x": 2}', "has the keys"),
        ('{"kindlm": "tool_call", "name": "refund"', "one complete"),
        ('{"kindlm": "output_json", "value": NaN}', "one complete"),
    ],
)
def test_a_line_that_is_nearly_a_report_is_text_and_may_be_a_call(line, expected):
    reply = printed_reply(f"Hello\n{line}", 1.0)
    assert reply.text == f"Hello\n{line}"
    assert [use.call.name for use in reply.tool_uses] == ["unknown"]
    warning = reply.warnings[0]
    assert warning.startswith("line 2 ")
    assert expected in warning


@pytest.mark.parametrize(
    "line", ['it says "kindlm" here', '["kindlm"]', '{"a": "kindlm"}', '{"a": 1}', "{"]
)
def test_a_line_that_only_speaks_of_kindlm_is_text(line):
    reply = printed_reply(line, 1.0)
    assert (reply.text, reply.tool_uses, reply.warnings) == (line, (), ())


def test_a_json_answer_may_be_named_data():
    reply = printed_reply('{"kindlm": "output_json", "data": {"day": 2}}', 1.0)
    assert (reply.text, reply.warnings) == ('{"day":2}', ())


@pytest.mark.parametrize("more", ["", ', "data": 1, "value": 2'])
def test_a_json_answer_without_its_value_is_an_error(run, failure, more):
    error = failure(run(f"""print('{{"kindlm": "output_json"{more}}}')"""))
    assert "output_json needs a `value`" in error.message


def test_many_lines_that_are_nearly_reports_make_few_warnings():
    reply = printed_reply('{"kindlm": "tool"}\n' * 1000, 1.0)
    assert len(reply.warnings) == 6
    assert len(reply.tool_uses) == 1


def test_arguments_are_single_words_and_never_seen_by_a_shell(run, success):
    hostile = 'it\'s; $(touch pwned) "x" `id` *'
    reply = success(run("import sys; print(sys.argv[1:])", hostile))
    assert reply.text == repr([hostile])


def test_the_environment_is_the_given_one(run, success):
    program = "import os; print(os.environ.get('A'), os.environ.get('HOME'))"
    assert success(run(program, environ={"A": "1"})).text == "1 None"


def test_it_runs_in_its_folder_with_this_python_and_without_input(run, success, tmp_path):
    program = "import os, sys; print(os.getcwd(), sys.executable, repr(sys.stdin.read()), sep='|')"
    reply = success(run(program))
    assert reply.text == f"{tmp_path.resolve()}|{sys.executable}|''"


def test_a_crash_is_an_error_with_the_last_words(run, failure):
    error = failure(run("print('half an answer'); raise SystemExit('no such order')"))
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert "exit code 1" in error.message
    assert "no such order" in error.message
    assert "half an answer" in error.details["body"]
    assert error.details["retryable"] is False


def test_a_timeout_names_the_program_and_the_key_that_raises_it(run, failure):
    program = """
        import time
        print("so far", flush=True)
        open("hangs", "w").write("now")
        time.sleep(600)
    """
    error = failure(run(program, "secret", hangs="hangs"))
    assert error.message == "Agent 'command': python agent.py did not answer within 600000 ms"
    assert "timeoutMs" in error.hint
    assert "so far" in error.details["body"]


def test_endless_output_is_an_error(run, failure):
    error = failure(run("while True: print('x' * 100_000)"))
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert "10 MB" in error.message


def test_bytes_that_are_no_text_do_no_harm(run, success):
    program = "import sys; sys.stdout.buffer.write(b'caf\\xe9')"
    told = success(run(program))
    assert told.text == "caf\ufffd"
    assert "cannot be decoded" in told.warnings[0]
    assert "PYTHONUTF8" in told.warnings[0]


@pytest.mark.parametrize("words", [("./no-such-program",), ("no-such-program", "x"), ("a\0b",)])
def test_a_program_that_is_not_there_is_an_error(make, ask, failure, tmp_path, words):
    async def talk():
        async with make(Command(words, str(tmp_path))) as agent:
            return await agent.send(ask())

    error = failure(asyncio.run(talk()))
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert "could not be started" in error.message


GRANDCHILD = """
    import os, signal, subprocess, sys, time
    {prelude}
    child = subprocess.Popen(
        [sys.executable, "-c", {child!r}], stdout=subprocess.PIPE if {own_pipe} else None
    )
    if {own_pipe}:
        child.stdout.readline()
    open("pids", "w").write(f"{{os.getpid()}} {{child.pid}}")
    print("started", flush=True)
    {then}
"""
SLEEP = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


def program_with_child(*, then: str, child: str = SLEEP, own_pipe: bool = True, prelude: str = ""):
    return GRANDCHILD.format(then=then, child=child, own_pipe=own_pipe, prelude=prelude)


@pytest.mark.parametrize("child", [SLEEP, STUBBORN], ids=["polite", "stubborn"])
def test_a_timeout_ends_the_program_and_its_children(run, failure, tmp_path, child, impatient):
    program = program_with_child(then="time.sleep(600)", child=child)
    error = failure(run(program, hangs="pids"))
    assert error.code is ErrorCode.PROVIDER_TIMEOUT
    assert error.details["retryable"] is False
    assert len(started_pids(tmp_path)) == 2
    assert_ended(started_pids(tmp_path))


@pytest.mark.parametrize("own_pipe", [True, False], ids=["own pipe", "shares our pipe"])
def test_what_it_leaves_behind_is_ended_and_holds_nothing_up(
    run, success, tmp_path, own_pipe, impatient
):
    reply = success(run(program_with_child(then="pass", own_pipe=own_pipe)))
    assert reply.text.startswith("started")
    assert_ended(started_pids(tmp_path))


def test_a_cancelled_conversation_ends_the_program(make, ask, tmp_path, impatient):
    (tmp_path / "agent.py").write_text(textwrap.dedent(program_with_child(then="time.sleep(600)")))
    command = Command(("python", "agent.py"), str(tmp_path))

    async def talk():
        async with make(command, PATH=os.environ["PATH"]) as agent:
            sending = asyncio.create_task(agent.send(ask()))
            while not (tmp_path / "pids").exists() or len(started_pids(tmp_path)) < 2:
                await asyncio.sleep(0.02)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending

    asyncio.run(talk())
    assert_ended(started_pids(tmp_path))


def test_the_program_can_end_politely(run, failure, tmp_path):
    program = """
        import signal, sys, time
        def leave(*_):
            open("left", "w").write("politely")
            sys.exit(0)
        signal.signal(signal.SIGTERM, leave)
        open("hangs", "w").write("now")
        time.sleep(600)
    """
    failure(run(program, hangs="hangs"))
    assert (tmp_path / "left").read_text() == "politely"
