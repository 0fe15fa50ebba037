"""Programs that are talked to in lines: what they are told, what they answer, how they end."""

from __future__ import annotations

import asyncio
import json
import os
import textwrap
from collections.abc import Sequence
from functools import partial

import pytest
from options import options_of
from processes import assert_ended, is_written, started_pids, time_passes_after

from kindlm.errors import ErrorCode
from kindlm.ports import ConversationSpoilt
from kindlm.suite import AgentTarget
from kindlm.transcript import Message, Role, ToolCall, ToolUse, Usage

ECHO = """
    import json, sys
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps({"text": request["message"].upper()}), flush=True)
"""


def target(folder, options=None, command: str | Sequence[str] = ("python", "agent.py"), **more):
    given = {"command": list(command) if not isinstance(command, str) else command}
    known = options_of("subprocess", {**given, **(options or {})})
    return AgentTarget("prog", "subprocess", "", options=known, directory=str(folder), **more)


@pytest.fixture
def talk(ask, tmp_path, make):
    """Send messages to a program, one after another, and return the results.

    One that `hangs` runs out of its 600 seconds once it has written the file of that name.
    """

    def talk(program: str, *messages, options=None, hangs: str | None = None, environ=None):
        (tmp_path / "agent.py").write_text(textwrap.dedent(program))

        async def hold():
            environment = {"PATH": os.environ["PATH"], **(environ or {})}
            has_come = partial(is_written, tmp_path / hangs) if hangs else None
            made = make(target(tmp_path, options), **environment)
            async with made as agent, time_passes_after(has_come):
                requests = messages or ("Hello",)
                return [
                    await agent.send(
                        ask(item, timeout_s=600 if hangs else 60) if isinstance(item, str) else item
                    )
                    for item in requests
                ]

        return asyncio.run(hold())

    return talk


def test_one_program_answers_all_messages_of_a_conversation(talk, success):
    program = """
        import json, os, sys
        for number, line in enumerate(sys.stdin):
            print(json.dumps({"text": f"{number} {os.getpid()} {json.loads(line)['message']}"}))
            sys.stdout.flush()
    """
    first, second = (success(result).text.split(maxsplit=2) for result in talk(program, "a", "b c"))
    assert (first[0], first[2]) == ("0", "a")
    assert (second[0], second[2]) == ("1", "b c")
    assert first[1] == second[1]


def test_a_request_is_one_line_with_all_that_is_known(talk, ask, success):
    from dataclasses import replace

    program = "import json, sys; print(json.dumps({'text': sys.stdin.readline()}))"
    said = (
        Message(Role.SYSTEM, "Be kind."),
        Message(Role.USER, "Hi"),
        Message(Role.ASSISTANT, "Hello"),
        Message(Role.USER, "Two\nlines, “ünïcode” \udca5"),
    )
    request = replace(ask(*said), context={"tenant": "acme"})
    reply = success(talk(program, request)[0])
    assert json.loads(reply.text) == {
        "message": said[-1].text,
        "messages": [{"role": item.role.value, "content": item.text} for item in said],
        "conversation_id": "conv-1",
        "context": {"tenant": "acme"},
    }
    assert reply.warnings == ()


def test_a_reply_is_read_like_that_of_an_http_agent(talk, success):
    answer = {
        "data": {"say": "Refunded.", "did": [{"name": "refund", "arguments": '{"id": "A1"}'}]},
        "usage": {"prompt_tokens": 12, "completion_tokens": 3},
        "cost": 0.25,
        "model": "m1",
    }
    program = f"import sys; sys.stdin.readline(); print({json.dumps(json.dumps(answer))})"
    paths = {"responsePath": "data.say", "toolCallsPath": "data.did"}
    reply = success(talk(program, options=paths)[0])
    assert reply.text == "Refunded."
    assert reply.tool_uses == (ToolUse(ToolCall("call_0", "refund", {"id": "A1"}), None, "agent"),)
    assert (reply.usage, reply.reported_cost_usd, reply.model) == (Usage(12, 3), 0.25, "m1")
    assert json.loads(reply.raw) == answer
    assert reply.latency_ms > 0


def test_empty_lines_a_byte_order_mark_and_a_missing_line_end_do_no_harm(talk, success):
    program = r"""
        import sys
        sys.stdout.buffer.write(b'\n \r\n\xef\xbb\xbf{"text": "caf\xc3\xa9"}\r\n')
        sys.stdout.flush()
        sys.stdin.readline(), sys.stdin.readline()
        sys.stdout.write('{"text": "end"}')
    """
    assert [success(result).text for result in talk(program, "a", "b")] == ["café", "end"]


def test_bytes_that_cannot_be_decoded_get_a_warning(talk, success):
    program = r"""
        import sys
        sys.stdout.buffer.write(b'{"text": "caf\xe9"}\n')
    """
    (told,) = talk(program)
    assert success(told).text == "caf\ufffd"
    assert "cannot be decoded" in success(told).warnings[0]


def test_it_has_the_environment_of_the_run_and_variables_of_its_own(talk, success):
    program = """
        import json, os
        print(json.dumps({"text": f"{os.environ['A']} {os.environ['B']}", "cwd": os.getcwd()}))
    """
    reply = success(talk(program, environ={"A": "1", "B": "2"}, options={"env": {"B": "3"}})[0])
    assert reply.text == "1 3"


def test_it_runs_in_a_folder_of_its_own(talk, success, tmp_path):
    (tmp_path / "deep").mkdir()
    program = "import json, os; print(json.dumps({'text': os.getcwd()}))"
    options = {"cwd": "deep", "command": ["python", "../agent.py"]}
    assert success(talk(program, options=options)[0]).text == str(tmp_path / "deep")


def test_an_error_that_it_reports_is_one(talk, failure):
    for answer in [{"error": {"message": "no such order", "code": 4}}]:
        error = failure(talk(f"print({json.dumps(json.dumps(answer))})")[0])
        assert error.message == "Agent 'prog' reported an error: no such order"
        assert error.details["retryable"] is False


@pytest.mark.parametrize(
    ("printed", "reason"),
    [("Ready.", "not valid JSON"), ("[1]", "not a JSON object"), ('{"text": "cut', "not valid")],
)  # fmt: skip
def test_a_line_that_is_no_object_is_an_error_that_says_what_to_print(
    talk, failure, printed, reason
):
    error = failure(talk(f"print({printed!r})")[0])
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert reason in error.message
    assert "one JSON object in one line" in error.hint
    assert len(error.message) < 600


def test_a_second_line_that_came_with_an_answer_is_an_error(talk, failure):
    program = """
        import sys
        sys.stdin.readline()
        print('{"text": "thinking"}\\n{"text": "done"}', flush=True)
        sys.stdin.read()
    """
    (result,) = talk(program, "a")
    assert "unexpected line" in failure(result).message


@pytest.mark.parametrize("late", ["first", "last"])
def test_a_line_too_many_spoils_the_conversation_whenever_it_comes(talk, failure, late):
    # What comes late is taken for the next answer: then the last one is left over.
    program = f"""
        import json, sys
        for line in sys.stdin:
            message = json.loads(line)["message"]
            if message != "first" and "{late}" == "first":
                print(json.dumps({{"text": "late"}}))
            print(json.dumps({{"text": message}}), flush=True)
        if "{late}" == "last":
            print(json.dumps({{"text": "too late"}}))
    """
    try:
        error = failure(talk(program, "first", "second")[-1])  # it was seen at once
    except ConversationSpoilt as spoilt:
        error = spoilt.error
    assert "unexpected line" in error.message


def test_what_it_printed_as_errors_is_in_the_error(talk, failure):
    program = r"import sys; sys.exit('log\n' * 9000 + '\x1b[31mno such order: A1')"
    error = failure(talk(program)[0])
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert "python agent.py ended with exit code 1 without an answer" in error.message
    assert "no such order: A1" in error.message
    assert "\x1b" not in error.message
    assert len(error.details["body"]) <= 16_384
    assert error.details["retryable"] is False


def test_a_program_that_ended_with_an_error_stays_ended(talk, failure):
    results = talk("import sys; sys.exit(3)", "a", "b")
    assert "exit code 3" in failure(results[0]).message
    assert "has ended" in failure(results[1]).message


def test_one_that_closes_its_output_and_goes_on_is_ended(
    talk, failure, tmp_path, impatient_to_leave
):
    program = """
        import os, time
        open("pids", "w").write(str(os.getpid()))
        os.close(1)
        time.sleep(600)
    """
    error = failure(talk(program)[0])
    assert "closed its output without an answer" in error.message
    assert_ended(started_pids(tmp_path))


def test_endless_errors_are_not_listed(talk, success):
    program = """
        import sys
        for _ in range(200):
            sys.stderr.write("x" * 100_000)
        print('{"text": "still there"}')
    """
    assert success(talk(program)[0]).text == "still there"


def test_an_answer_without_line_end_is_waited_for(talk, failure):
    program = """
        import sys, time
        sys.stdout.write('{"text": "x"}')
        sys.stdout.flush()
        open("hangs", "w").write("now")
        time.sleep(600)
    """
    error = failure(talk(program, hangs="hangs")[0])
    assert "line end" in error.hint


@pytest.mark.parametrize("shares_output", [True, False])
def test_a_child_that_lives_on_is_ended_and_holds_nothing_up(
    talk, success, failure, tmp_path, shares_output, impatient
):
    program = f"""
        import os, subprocess, sys
        output = None if {shares_output} else subprocess.DEVNULL
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                                 stdout=output, stderr=output)
        open("pids", "w").write(f"{{os.getpid()}} {{child.pid}}")
        print('{{"text": "first"}}', flush=True)
        sys.stdin.readline()
    """
    first, second = talk(program, "a", "b")
    assert success(first).text == "first"
    assert "ended with exit code 0" in failure(second).message
    assert_ended(started_pids(tmp_path))


def test_at_the_end_its_input_is_closed_so_that_it_can_end_by_itself(talk, success, tmp_path):
    program = ECHO + '    open("left", "w").write("by itself")\n'
    assert success(talk(program)[0]).text == "HELLO"
    assert (tmp_path / "left").read_text() == "by itself"


def test_one_that_does_not_care_about_its_input_is_ended(
    talk, success, tmp_path, impatient_to_leave
):
    program = """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("pids", "w").write(str(os.getpid()))
        print('{"text": "x"}', flush=True)
        time.sleep(600)
    """
    success(talk(program)[0])
    assert_ended(started_pids(tmp_path))


def test_nothing_is_started_before_the_first_message(make, tmp_path):
    async def hold():
        options = {"command": ["touch", "started"]}
        async with make(target(tmp_path, options), PATH=os.environ["PATH"]):
            pass

    asyncio.run(hold())
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    "options",
    [{"command": ["no-such-program"]}, {"cwd": "no-such-folder"}],
)
def test_a_program_that_is_not_there_is_an_error(talk, failure, options):
    error = failure(talk("", options=options)[0])
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert "could not be started" in error.message
    assert "folder" in error.hint


def test_secrets_of_its_environment_are_in_no_message(talk, failure):
    program = "import os, sys; sys.exit('key is ' + os.environ['SHOP_KEY'])"
    error = failure(talk(program, options={"env": {"SHOP_KEY": "hunter2-hunter2"}})[0])
    assert "hunter2" not in error.message + error.details["body"]
    assert "key is [hidden]" in error.message


# A program for one message.

PRINT = "import sys; print(sys.argv[1:], sys.stdin.read())"


def one_shot(command: str, **more):
    return {"oneShot": True, "command": command, **more}


def test_a_message_is_an_argument_where_there_is_a_place_for_it(talk, success):
    options = one_shot("python agent.py --ask={{message}} '{{ message }}'")
    message = "Where is 'it'; rm -rf $HOME {{message}}\nplease?"
    reply = success(talk(PRINT, message, options=options)[0])
    assert reply.text == f"{[f'--ask={message}', message]!r} "
    assert reply.warnings == ()


def test_a_message_is_the_input_where_there_is_no_place_for_it(talk, success):
    reply = success(talk(PRINT, "Two\nlines “é”", options=one_shot("python agent.py"))[0])
    assert reply.text == "[] Two\nlines “é”"


def test_what_was_said_before_can_be_an_argument(talk, ask, success):
    said = (
        Message(Role.SYSTEM, "Be kind."),
        Message(Role.USER, "a"),
        Message(Role.ASSISTANT, "b"),
        Message(Role.USER, "c"),
    )
    program = "import sys; print(sys.argv[1])"
    options = one_shot("python agent.py {{messages}}")
    reply = success(talk(program, ask(*said), options=options)[0])
    assert [entry["content"] for entry in json.loads(reply.text)] == ["Be kind.", "a", "b", "c"]
    assert reply.warnings == ()
    reply = success(talk(program, ask(*said), options=one_shot("python agent.py {{message}}"))[0])
    assert [warning.partition(" ")[0] for warning in reply.warnings] == ["the", "earlier"]


def test_one_that_does_not_read_a_long_message_answers_all_the_same(talk, success):
    reply = success(talk("print('ok')", "x" * 1_000_000, options=one_shot("python agent.py"))[0])
    assert reply.text == "ok"


def test_a_message_that_is_too_long_for_an_argument_is_an_error(talk, failure):
    options = one_shot("python agent.py {{message}}")
    error = failure(talk("print(1)", "x" * 1_000_000, options=options)[0])
    assert "could not be started" in error.message
