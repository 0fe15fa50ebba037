"""Scenarios as they are run: what they say, what is checked, and how they come out."""

from __future__ import annotations

import pytest
from scenario_project import Project

from kindlm.cli.app import run


def test_a_scenario_talks_to_the_agent_and_is_checked(project: Project) -> None:
    code = project.test(
        tests="""
karen = Persona(role="customer", tone="furious")

@scenario("angry customer", tags={"refund"})
async def test_refund(t: Trial) -> None:
    first = await t.agent.send(karen.says("I want a refund."))
    t.check(first).contains("REFUND").not_contains("calm down")
    second = await t.agent.send("Today!")
    t.check(second).contains("tomorrow")
"""
    )
    assert code == 1
    assert project.agent.said == ["I want a refund.", "Today!"]
    assert project.checks() == [
        ("contains", "REFUND", "passed", 7),
        ("not_contains", "calm down", "passed", 7),
        ("contains", "turn 2: tomorrow", "failed", 9),
    ]
    [(test, target, tags)] = project.rows("SELECT test, target, tags FROM executions")
    assert (test, target, tags) == ("tests/test_it.py::test_refund", "agent", '["refund"]')


def test_each_message_is_sent_once_and_in_one_conversation(project: Project) -> None:
    project.write(
        "kindlm.toml", f'[agent]\ntype="http"\nurl="{project.agent.url}"\nrequest="messages"\n'
    )
    project.agent.answer = lambda _: {"message": "ok"}
    project.test(
        tests="""
@scenario("two messages")
async def test_two(t: Trial) -> None:
    t.check(await t.agent.send("one")).contains("ok")
    t.check(await t.agent.send("two")).contains("ok")
"""
    )
    assert [[m["content"] for m in request["messages"]] for request in project.agent.requests] == [
        ["one"],
        ["one", "ok", "two"],
    ]


def test_a_scenario_that_checks_nothing_fails(project: Project) -> None:
    assert project.test(tests='\n@scenario("x")\nasync def test_it(t: Trial): pass\n') == 1
    assert project.checks() == [("checked", "something is checked", "failed", 2)]


def test_a_plain_assert_is_a_failed_check_at_its_line(project: Project) -> None:
    project.test(
        tests="""
@scenario("x")
async def test_it(t: Trial) -> None:
    reply = await t.agent.send("hi")
    assert reply.text == "hello"
"""
    )
    assert project.statuses() == {"test_it": "failed"}
    assert project.checks() == [("assert", 'reply.text == "hello"', "failed", 5)]


def test_another_exception_makes_the_execution_errored(project: Project) -> None:
    project.test(
        tests="""
@scenario("x")
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
    {}["missing"]
"""
    )
    [(status, error, trace)] = project.rows(
        "SELECT status, x.body, t.body FROM executions e JOIN contents x ON x.ref = e.error_ref"
        " JOIN contents t ON t.ref = e.trace_ref"
    )
    assert status == "errored"
    assert "KeyError" in error
    assert "tests/test_it.py:5" in error
    assert "line 5, in test_it" in trace
    assert "kindlm/scenarios" not in trace
    assert project.checks() == [("contains", "hi", "passed", 4)]


def test_require_ends_the_scenario(project: Project) -> None:
    project.test(
        tests="""
@scenario("x")
async def test_it(t: Trial) -> None:
    reply = await t.agent.send("hi")
    t.require(reply).contains("hi").contains("bye").contains("never")
    await t.agent.send("never")
"""
    )
    assert project.statuses() == {"test_it": "failed"}
    assert [label for _, label, *_ in project.checks()] == ["hi", "bye"]
    assert project.agent.said == ["hi"]


def test_require_takes_what_is_no_answer(project: Project) -> None:
    project.test(
        tests="""
@scenario("x")
async def test_it(t: Trial) -> None:
    t.require([1], "some orders")
    t.require([], "some refunds")
    await t.agent.send("never")
"""
    )
    assert [(label, outcome) for _, label, outcome, _ in project.checks()] == [
        ("some orders", "passed"),
        ("some refunds", "failed"),
    ]
    assert project.agent.said == []


def test_an_agent_that_fails_makes_the_execution_errored(project: Project) -> None:
    project.agent.answer = lambda _: 400
    project.test(
        tests="""
@scenario("x")
async def test_it(t: Trial) -> None:
    try:
        await t.agent.send("hi")
    except AgentError:
        pass
"""
    )
    assert project.statuses() == {"test_it": "errored"}


def test_a_function_that_is_not_async_runs_in_a_thread(project: Project) -> None:
    project.test(
        tests="""
import threading

@scenario("x")
def test_it(t: SyncTrial) -> None:
    assert threading.current_thread() is not threading.main_thread()
    reply = t.agent.send("hi")
    t.check(reply).contains("hi")
    t.score("seen", 1)
    t.require(reply).contains("bye")
    t.agent.send("never")
"""
    )
    assert project.agent.said == ["hi"]
    assert [(label, outcome) for _, label, outcome, _ in project.checks()] == [
        ("hi", "passed"),
        ("seen", "passed"),
        ("bye", "failed"),
    ]


def test_what_is_no_exception_ends_no_run(project: Project) -> None:
    project.test(
        tests="""
import pytest, sys

async def leaves(reply):
    sys.exit(3)

@scenario("x")
async def test_exit(t: Trial) -> None:
    sys.exit(3)

@scenario("x")
def test_exit_in_a_thread(t: SyncTrial) -> None:
    sys.exit(3)

@scenario("x")
async def test_check(t: Trial) -> None:
    t.check(await t.agent.send("hi")).custom("leaves", leaves)

@scenario("x")
async def test_fail(t: Trial) -> None:
    pytest.fail("not good")

@scenario("x")
async def test_skip(t: Trial) -> None:
    pytest.skip("not now")

@scenario("x")
async def test_good(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
"""
    )
    assert project.statuses() == {
        "test_exit": "errored",
        "test_exit_in_a_thread": "errored",
        "test_check": "errored",
        "test_fail": "failed",
        "test_skip": "errored",
        "test_good": "passed",
    }


def test_the_error_of_the_agent_is_reported_whatever_becomes_of_it(project: Project) -> None:
    project.agent.answer = lambda _: 400
    project.test(
        tests="""
import asyncio

@scenario("x")
async def test_it(t: Trial) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(t.agent.send("hi"))
"""
    )
    assert project.rows("SELECT error_code FROM executions") == [("PROVIDER_API_ERROR",)]


def error_of(project: Project) -> str:
    [(error,)] = project.rows(
        "SELECT x.body FROM executions e JOIN contents x ON x.ref = e.error_ref"
    )
    return str(error)


def test_asserts_that_hold_are_reported_to_leave_no_trace(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = """
@scenario("x")
async def test_it(t: Trial) -> None:
    assert (await t.agent.send("hi")).text
"""
    assert project.test(tests=tests) == 1
    assert "t.require(condition" in capsys.readouterr().out


def test_asserts_and_requirements_in_a_group_of_tasks_are_checks(project: Project) -> None:
    project.test(
        tests="""
import asyncio

@scenario("x")
async def test_it(t: Trial) -> None:
    async def asserts(text):
        assert (await t.agent.send(text)).text == "no"

    async with asyncio.TaskGroup() as group:
        group.create_task(asserts("one"))

@scenario("x")
async def test_required(t: Trial) -> None:
    async def requires():
        t.require(await t.agent.send("hi")).contains("no")

    async with asyncio.TaskGroup() as group:
        group.create_task(requires())

@scenario("x")
async def test_error(t: Trial) -> None:
    async def fails():
        raise KeyError("missing")

    t.check(await t.agent.send("hi")).contains("hi")
    async with asyncio.TaskGroup() as group:
        group.create_task(fails())
"""
    )
    assert project.statuses() == {
        "test_it": "failed",
        "test_required": "failed",
        "test_error": "errored",
    }
    assert project.checks()[:2] == [
        ("assert", '(await t.agent.send(text)).text == "no"', "failed", 7),
        ("contains", "no", "failed", 15),
    ]
    assert "raised KeyError: 'missing' (tests/test_it.py:23)" in error_of(project)


def test_a_class_that_cannot_be_made_is_an_error_of_the_test(project: Project) -> None:
    project.test(
        tests="""
class Made(type):
    def __call__(cls):
        raise ValueError("no database")

class TestIt(metaclass=Made):
    @scenario("x")
    async def test_it(self, t: Trial) -> None:
        t.check(await t.agent.send("hi")).contains("hi")
"""
    )
    assert "raised ValueError" in error_of(project)
    assert "tests/test_it.py:4" in error_of(project)


def test_an_error_without_a_readable_message_is_an_error_of_the_test(project: Project) -> None:
    project.test(
        tests="""
class Lost(Exception):
    def __str__(self):
        return self.order

@scenario("x")
async def test_it(t: Trial) -> None:
    raise Lost
"""
    )
    assert "raised Lost: <exception str() failed> (tests/test_it.py:8)" in error_of(project)


def test_an_error_without_a_message_is_named_by_its_class(project: Project) -> None:
    project.test(
        tests="""
@scenario("x")
async def test_it(t: Trial) -> None:
    raise NotImplementedError
"""
    )
    assert "raised NotImplementedError (tests/test_it.py:4)" in error_of(project)


@pytest.mark.parametrize("kind", ["async def", "def"])
@pytest.mark.parametrize("error", ["GeneratorExit", "asyncio.CancelledError"])
def test_an_error_that_is_no_exception_ends_its_scenario_alone(
    project: Project, kind: str, error: str
) -> None:
    project.test(
        tests=f"""
import asyncio

def raises(reply):
    raise {error}

async def raises_later(reply):
    raise {error}

@scenario("x")
{kind} test_it(t) -> None:
    raise {error}

@scenario("x")
async def test_custom(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("bye").custom("raises", raises)

@scenario("x")
async def test_later(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi").custom("raises", raises_later)

@scenario("x")
async def test_good(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
"""
    )
    assert project.statuses() == {
        "test_it": "errored",
        "test_custom": "errored",
        "test_later": "errored",
        "test_good": "passed",
    }
    assert ("contains", "bye", "failed", 16) in project.checks()


FOREIGN = """
import dataclasses

kept = []

@scenario("a")
async def test_first(t: Trial) -> None:
    kept.append(await t.agent.send("one"))
    kept.append(await t.agent.send("two"))
    t.check(kept[1]).contains("two")

@scenario("b")
async def test_checked(t: Trial) -> None:
    await t.agent.send("hi")
    t.check(kept[1]).not_contains("two")

@scenario("b")
async def test_same_turn(t: Trial) -> None:
    await t.agent.send("hi")
    t.require(kept[0]).contains("hi")

@scenario("b")
async def test_judged(t: Trial) -> None:
    await t.agent.send("hi")
    t.judge(kept[0], "polite?")

@scenario("c")
async def test_replaced(t: Trial) -> None:
    reply = await t.agent.send("hi")
    t.check(dataclasses.replace(reply, latency_ms=0)).latency(0)

@scenario("d")
def test_thread(t: SyncTrial) -> None:
    t.agent.send("hi")
    t.check(kept[0]).contains("one")

@scenario("e")
async def test_unawaited(t: Trial) -> None:
    t.check(t.agent.send("never")).contains("never")

@scenario("f")
async def test_text(t: Trial) -> None:
    t.check((await t.agent.send("hi")).text).contains("hi")
"""


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
def test_what_is_checked_is_an_answer_of_this_trial_as_it_was(project: Project) -> None:
    project.test("-j", "1", tests=FOREIGN)
    found = project.statuses()
    assert found.pop("test_first") == "passed"
    assert set(found.values()) == {"errored"}
    told = dict(
        project.rows(
            "SELECT e.test, x.body FROM executions e JOIN contents x ON x.ref = e.error_ref"
        )
    )
    for name in ("checked", "same_turn", "judged", "replaced", "thread"):
        assert "does not belong to this run" in told[f"tests/test_it.py::test_{name}"]
    assert "await it first" in told["tests/test_it.py::test_unawaited"]
    assert "what t.agent.send returned" in told["tests/test_it.py::test_text"]


def test_what_is_done_to_an_answer_changes_no_check(project: Project) -> None:
    project.agent.answer = lambda _: {
        "message": "ok",
        "tool_calls": [{"name": "refund", "arguments": {"order": {"id": "A1"}}}],
    }
    code = project.test(
        tests="""
@scenario("x")
async def test_it(t: Trial) -> None:
    reply = await t.agent.send("hi")
    reply.tool_calls[0].arguments["order"]["id"] = "B2"
    t.check(reply).tool_called("refund", {"order": {"id": "A1"}})
    t.check(reply).tool_not_called("refund", {"order": {"id": "B2"}})
"""
    )
    assert code == 0


def test_an_async_check_cannot_use_a_trial_that_would_wait_for_it(project: Project) -> None:
    project.test(
        tests="""
@scenario("x", timeout=20)
def test_it(t: SyncTrial) -> None:
    async def asks(reply):
        return t.agent.send("again").text

    t.check(t.agent.send("hi")).custom("asks", asks)
"""
    )
    assert project.agent.said == ["hi"]
    [(message,)] = project.rows(
        "SELECT x.body FROM assertions a JOIN contents x ON x.ref = a.message_ref"
    )
    assert "make the scenario an `async def test_" in message
    assert project.statuses() == {"test_it": "errored"}


def test_a_file_is_named_once_above_its_tests(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write(
        "tests/test_it.py",
        "from kindlm import *"
        """
@scenario("x")
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("bye")
""",
    )
    assert run(["test", "tests"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0].split() == ["✗", "tests/test_it.py", "1", "test", "on", "agent", "0/1"]
    assert " ".join(told[2].split()) == '✗ Missing in the answer: "bye" test_it · agent'
    assert not any("::" in line for line in told)
