"""How trials are run: timeouts, threads, and what they leave behind."""

from __future__ import annotations

import math
import os
from typing import Any

import loaded_kindlm
import pytest
from scenario_project import LoopbackAgent, Project

from kindlm import scenario

GOOD = """
from kindlm import *

@scenario("good")
async def test_good(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
"""

HANGS = """
@scenario("hangs", timeout=1)
{kind} test_it(t) -> None:
    reply = {wait}t.agent.send("one")
    t.check(reply).contains("one")
    {wait}t.agent.send("hang")
    t.check(reply).contains("never")

@scenario("goes on")
async def test_other(t: Trial) -> None:
    t.check(await t.agent.send("two")).contains("two")
"""


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off at once what does not close what it has opened."""
    monkeypatch.setattr("kindlm.engine.stop._GRACE_S", 0.1)


def hanging(agent: LoopbackAgent) -> Any:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["message"] == "hang":
            agent.release.wait(20)
        return {"message": request["message"]}

    return answer


@pytest.mark.parametrize(("kind", "wait"), [("async def", "await "), ("def", "")])
def test_a_timeout_cuts_a_trial_off_and_no_other(project: Project, kind: str, wait: str) -> None:
    project.agent.answer = hanging(project.agent)
    assert project.test(tests=HANGS.format(kind=kind, wait=wait)) == 1
    assert project.statuses() == {"test_it": "errored", "test_other": "passed"}
    [(error,)] = project.rows("SELECT error_code FROM executions WHERE status = 'errored'")
    assert error == "PROVIDER_TIMEOUT"
    assert [label for _, label, *_ in project.checks()] == ["one", "two"]


@pytest.mark.parametrize("timeout", [math.inf, math.nan, 1e9, 0])
def test_a_timeout_is_a_number_of_seconds(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be more than 0 seconds"):
        scenario("x", timeout=timeout)


def test_a_timeout_in_yaml_is_a_number_of_seconds(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tests/test_good.py", GOOD)
    project.write("tests/bad.yaml", "name: x\ntimeout: 1.0e+308\nturns: [{says: hi}]\n")
    project.test()
    assert "timeout" in capsys.readouterr().err
    assert project.statuses() == {"test_good": "passed"}


def test_a_function_that_never_ends_holds_up_nothing(project: Project) -> None:
    project.test(
        tests="""
import threading

@scenario("hangs", timeout=0.3)
def test_it(t: SyncTrial) -> None:
    t.check(t.agent.send("one")).contains("one")
    threading.Event().wait()
"""
    )
    assert project.statuses() == {"test_it": "errored"}


def test_a_scenario_that_stops_the_clock_holds_up_nothing(project: Project) -> None:
    # As freezegun does it.
    source = """
import asyncio, time
from unittest import mock
from kindlm import *

async def answer(text):
    await asyncio.sleep(0.001)
    return f"{text} {time.monotonic()}"

@scenario("in the future", agent=answer)
async def test_it(t: Trial) -> None:
    with mock.patch("time.monotonic", lambda: 1e9):
        t.check(await t.agent.send("hi")).contains("1000000000")
"""
    project.write("tests/test_it.py", source)
    assert project.test() == 0
    assert project.statuses() == {"test_it": "passed"}


def test_a_function_that_blocks_past_its_timeout_is_errored(project: Project) -> None:
    project.test(
        tests="""
import time

@scenario("blocks", timeout=0.2)
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
    time.sleep(0.3)
"""
    )
    assert project.statuses() == {"test_it": "errored"}


def test_a_function_that_catches_its_cancellation_is_cut_off_all_the_same(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.agent.answer = hanging(project.agent)
    project.test(
        tests="""
import asyncio

@scenario("goes on", timeout=0.3)
async def test_ignores(t: Trial) -> None:
    while True:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            pass

@scenario("tries again", timeout=0.3)
async def test_tries(t: Trial) -> None:
    while True:
        try:
            await t.agent.send("hang")
        except BaseException:
            pass

@scenario("says that it is well", timeout=0.3)
async def test_returns(t: Trial) -> None:
    reply = await t.agent.send("hi")
    try:
        await t.agent.send("hang")
    except BaseException:
        t.check(reply).contains("hi")

async def endless(reply: Reply) -> bool:
    while True:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            pass

@scenario("a check goes on", timeout=0.3)
async def test_check(t: Trial) -> None:
    t.check(await t.agent.send("hi")).custom("endless", endless)
"""
    )
    assert project.statuses() == {
        "test_ignores": "errored",
        "test_tries": "errored",
        "test_returns": "errored",
        "test_check": "errored",
    }
    assert "destroyed" not in capsys.readouterr().err


# Where it waits is the same for both, and tried with one of each.
@pytest.mark.parametrize(
    ("module", "arguments", "waits"),
    [
        ("kindlm", ["test", "tests"], "asyncio.sleep(30)"),
        ("pytest", ["-q", "--kindlm"], 't.agent.send("hang")'),
    ],
)
def test_a_process_ends_though_a_function_catches_all_that_would_end_it(
    project: Project, module: str, arguments: list[str], waits: str
) -> None:
    project.agent.answer = hanging(project.agent)
    project.write(
        "tests/test_it.py",
        f"""
import asyncio
from kindlm import Trial, scenario
from kindlm.engine import stop

stop._GRACE_S = 0.1  # what does not end is given up at once

@scenario("tries again", timeout=0.3)
async def test_it(t: Trial) -> None:
    while True:
        try:
            await {waits}
        except BaseException:
            pass
""",
    )
    ended = loaded_kindlm.run(
        arguments, cwd=project.root, env=os.environ, timeout_s=60, module=module
    )
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    assert project.statuses() == {"test_it": "errored"}


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ('t.agent.send("again")', "t.agent.send(…)"),
        ('t.converse(Persona(role="x"), goal="y")', "t.converse(…)"),
    ],
)
def test_what_is_never_awaited_is_an_error_at_its_line(
    project: Project, capsys: pytest.CaptureFixture[str], call: str, named: str
) -> None:
    project.test(
        tests=f"""
@scenario("x")
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
    {call}
"""
    )
    assert project.statuses() == {"test_it": "errored"}
    assert project.agent.said == ["hi"]
    told = " ".join(capsys.readouterr().out.split())
    assert f"never awaited {named}" in told
    assert f"Write `await {named}` in line 5." in told


@pytest.mark.parametrize("kind", ["async def", "def"])
@pytest.mark.parametrize("call", ["look(t, reply)", "lost = within()", "polite(reply)"])
@pytest.mark.filterwarnings("ignore:coroutine 'test_other")
def test_a_function_with_checks_that_is_never_awaited_is_an_error(
    project: Project, capsys: pytest.CaptureFixture[str], call: str, kind: str
) -> None:
    tests = f"""
async def look(t, reply):
    t.check(reply).not_contains("hi")

async def polite(reply):
    assert "hi" not in reply.text

@scenario("x")
async def test_it(t: Trial) -> None:
    reply = await t.agent.send("hi")
    t.check(reply).contains("hi")
    async def within():
        t.check(reply).not_contains("hi")
    {call}

@scenario("y")
async def test_other(t: Trial) -> None:
    reply = await t.agent.send("hi")
    t.check(reply).contains("hi")
    async def of_others():
        pass
    of_others()
"""
    if kind == "def":
        tests = tests.replace("async def test", "def test").replace("await ", "")
        tests = tests.replace("Trial", "SyncTrial")
    project.test(tests=tests)
    assert project.statuses() == {"test_it": "errored", "test_other": "passed"}
    told = " ".join(capsys.readouterr().out.split())
    named = call.removeprefix("lost = ").partition("(")[0]
    assert f"never awaited {named}(…)" in told


@pytest.mark.parametrize(
    ("after", "status"),
    [("", "errored"), ("    task.cancel()", "passed"), ("    await task", "failed")],
)
def test_a_task_with_checks_that_nobody_awaits_is_an_error(
    project: Project, capsys: pytest.CaptureFixture[str], after: str, status: str
) -> None:
    project.test(
        tests=f"""
import asyncio

async def look(t, reply):
    await asyncio.sleep(0)
    t.check(reply).not_contains("hi")

@scenario("x")
async def test_it(t: Trial) -> None:
    reply = await t.agent.send("hi")
    t.check(reply).contains("hi")
    task = asyncio.create_task(look(t, reply))
{after}
"""
    )
    assert project.statuses() == {"test_it": status}
    told = " ".join(capsys.readouterr().out.split())
    assert ("ended while look still ran as a task" in told) == (status == "errored")


@pytest.mark.parametrize(
    "after",
    ["t.require(True)", 't.check(await t.agent.send("later")).not_contains("later")'],
)
def test_a_message_that_the_test_cuts_off_ends_the_conversation(
    project: Project, capsys: pytest.CaptureFixture[str], after: str
) -> None:
    project.agent.answer = hanging(project.agent)
    project.test(
        tests=f"""
import asyncio

@scenario("x")
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
    try:
        await asyncio.wait_for(t.agent.send("hang"), 0.2)
    except TimeoutError:
        pass
    {after}
"""
    )
    assert project.statuses() == {"test_it": "errored"}
    assert project.agent.said == ["hi", "hang"]
    told = "A message was cut off before its answer arrived."
    assert told in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("function", "wait", "start"),
    [
        ("async def", "await ", 'asyncio.create_task(t.agent.send("hang"))'),
        ("async def", "await ", 'asyncio.create_task(t.agent.send("hang")).cancel'),
        ("def", "", 'Thread(target=t.agent.send, args=("hang",), daemon=True).start()'),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_message_whose_answer_nobody_awaits_is_an_error_and_its_call_is_recorded_as_cut_off(
    project: Project, capsys: pytest.CaptureFixture[str], function: str, wait: str, start: str
) -> None:
    project.agent.answer = hanging(project.agent)
    sleep = f"{wait}asyncio.sleep" if wait else "time.sleep"
    project.test(
        tests=f"""
import asyncio, time
from threading import Thread

@scenario("x")
{function} test_it(t) -> None:
    t.check({wait}t.agent.send("hi")).contains("hi")
    lost = {start}
    {sleep}(0.3)
    if callable(lost):
        lost()
"""
    )
    assert project.statuses() == {"test_it": "errored"}
    told = " ".join(capsys.readouterr().out.split())
    assert "The scenario ended while t.agent.send(…) still ran." in told
    calls = project.rows("SELECT type FROM event_log WHERE type LIKE 'agent.%' ORDER BY seq")
    assert [each for (each,) in calls] == [
        *("agent.sent", "agent.replied"),
        *("agent.sent", "agent.failed"),
    ]


@pytest.mark.parametrize("kind", ["async def", "def"])
@pytest.mark.parametrize("after", ["", "    go_on.set(); thread.join()"])
def test_a_thread_with_the_trial_that_nobody_joins_is_an_error(
    project: Project, capsys: pytest.CaptureFixture[str], after: str, kind: str
) -> None:
    tests = f"""
import threading

@scenario("x")
async def test_it(t: Trial) -> None:
    reply = await t.agent.send("hi")
    t.check(reply).contains("hi")
    begun, go_on = threading.Event(), threading.Event()
    def look():
        begun.set()
        if go_on.wait() and reply is None:
            t.check(reply).not_contains("hi")
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    begun.wait()
{after}
"""
    if kind == "def":
        tests = tests.replace("async def", "def").replace("await ", "").replace("Tri", "SyncTri")
    project.test(tests=tests)
    assert project.statuses() == {"test_it": "passed" if after else "errored"}
    told = " ".join(capsys.readouterr().out.split())
    assert ("ended while look still ran in a thread" in told) == (not after)


def test_a_function_that_leaves_its_work_to_others_is_an_error(project: Project) -> None:
    project.test(
        tests="""
@scenario("x")
def test_it(t: SyncTrial):
    t.check(t.agent.send("hi")).contains("hi")

    async def rest() -> None:
        t.check(t.agent.send("hi")).contains("never")

    return rest()
"""
    )
    assert project.statuses() == {"test_it": "errored"}


def test_that_an_answer_mentions_an_empty_text_is_an_error(project: Project) -> None:
    project.test(
        tests="""
@scenario("x")
async def test_it(t: Trial):
    t.require((await t.agent.send("hi")).mentions(""))
"""
    )
    assert project.statuses() == {"test_it": "errored"}


@pytest.mark.parametrize(("kind", "trial"), [("async def", "Trial"), ("def", "SyncTrial")])
def test_a_function_that_returns_false_is_an_error(project: Project, kind: str, trial: str) -> None:
    send = "t.agent.send('hi')" if kind == "def" else "await t.agent.send('hi')"
    project.test(
        tests=f"""
@scenario("x")
{kind} test_it(t: {trial}):
    reply = {send}
    t.check(reply).contains("hi")
    return reply.mentions("bye")

@scenario("x")
{kind} test_other(t: {trial}):
    reply = {send}
    t.check(reply).contains("hi")
    return reply
"""
    )
    assert project.statuses() == {"test_it": "errored", "test_other": "passed"}


def test_a_cancellation_of_its_own_is_an_error_of_the_scenario(project: Project) -> None:
    project.test(
        tests="""
import asyncio

@scenario("x")
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
    raise asyncio.CancelledError

@scenario("y")
async def test_other(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
"""
    )
    assert project.statuses() == {"test_it": "errored", "test_other": "passed"}


def test_a_cancellation_that_never_comes_loses_no_check(project: Project) -> None:
    code = project.test(
        tests="""
import asyncio

@scenario("x")
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("never said")
    asyncio.current_task().cancel()

@scenario("y")
async def test_other(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
"""
    )
    assert project.statuses() == {"test_it": "errored", "test_other": "passed"}
    assert [outcome for _, _, outcome, _ in project.checks()] == ["failed", "passed"]
    assert code == 1


@pytest.mark.parametrize("wait", ["", "await asyncio.sleep(0.05); "])
def test_a_check_that_ends_as_if_cancelled_decides_nothing(project: Project, wait: str) -> None:
    project.test(
        tests=f"""
import asyncio

async def ended(reply: Reply) -> bool:
    {wait}raise asyncio.CancelledError

@scenario("x")
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi").custom("c", ended)
    await asyncio.sleep(0.01)
"""
    )
    assert [outcome for _, _, outcome, _ in project.checks()] == ["passed", "inconclusive"]
    assert project.statuses() == {"test_it": "errored"}


def test_a_task_that_is_left_behind_and_never_ends_holds_up_no_end(project: Project) -> None:
    code = project.test(
        tests="""
import asyncio

@scenario("x")
async def test_it(t: Trial) -> None:
    async def forever() -> None:
        while True:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                pass

    test_it.kept = asyncio.create_task(forever())
    t.check(await t.agent.send("hi")).contains("hi")
"""
    )
    assert code == 0


def test_what_is_left_behind_records_nothing_more(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.test(
        tests="""
import asyncio

@scenario("x", repeats=2)
async def test_it(t: Trial) -> None:
    reply = await t.agent.send("hi")
    t.check(reply).contains("hi")

    async def later() -> None:
        await asyncio.sleep(0)
        while True:
            t.check(reply).contains("late")
            await t.agent.send("late")

    asyncio.current_task().get_loop().call_soon(lambda: asyncio.ensure_future(later()))

@scenario("y", repeats=3)
async def test_other(t: Trial) -> None:
    for _ in range(4):
        t.check(await t.agent.send("hi")).contains("hi")
"""
    )
    assert project.statuses() == {"test_it": "passed", "test_other": "passed"}
    [(last, finished)] = project.rows(
        "SELECT max(seq), max(seq) FILTER (WHERE type = 'execution.finished') FROM events"
        " WHERE subject = (SELECT subject FROM events WHERE type = 'execution.finished'"
        " ORDER BY seq LIMIT 1)"
    )
    assert last == finished
    assert "late" not in project.agent.said
    # A check is not lost without a word; its line is named once.
    assert capsys.readouterr().err.count(":12 ran after its scenario had ended") == 1


def test_a_judge_that_hangs_is_cut_off_with_its_trial(project: Project) -> None:
    def judge(_: dict[str, Any]) -> dict[str, Any]:
        project.agent.release.wait(20)
        return {"score": 5, "reasoning": "late"}

    project.agent.judge = judge
    project.test(
        tests="""
@scenario("x", timeout=0.5)
async def test_it(t: Trial) -> None:
    t.judge(await t.agent.send("hi"), "polite?")
"""
    )
    assert project.statuses() == {"test_it": "errored"}
    assert project.checks() == []


def test_trials_run_at_once_and_share_nothing(project: Project) -> None:
    project.test(
        tests="""
@scenario("x", repeats=8)
async def test_it(t: Trial) -> None:
    for number in "ab":
        t.check(await t.agent.send(number)).contains(number)
"""
    )
    assert project.rows("SELECT count(*), sum(status = 'passed') FROM executions") == [(8, 8)]
    by_conversation: dict[str, list[str]] = {}
    for request in project.agent.requests:
        by_conversation.setdefault(request["conversation_id"], []).append(request["message"])
    assert list(by_conversation.values()) == [["a", "b"]] * 8


def test_messages_sent_at_once_are_sent_one_after_the_other(project: Project) -> None:
    project.test(
        tests="""
import asyncio

@scenario("x")
async def test_it(t: Trial) -> None:
    one, two = await asyncio.gather(t.agent.send("one"), t.agent.send("two"))
    t.check(one).contains("one")
    t.check(two).contains("two")
    assert (one.turn, two.turn) == (1, 2)
"""
    )
    assert project.statuses() == {"test_it": "passed"}
