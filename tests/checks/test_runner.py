"""The runner: finds checks, bounds what they see, and turns crashes into results."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from evaluated import awaited, evaluated, nobody

from kindlm.checks import Check, CheckRunner, check, discover
from kindlm.checks.registry import collect
from kindlm.outcome import CheckResult, Evidence, FailureCode, Outcome
from kindlm.ports import CheckContext, Checker
from kindlm.suite import Expectation
from kindlm.transcript import Step, ToolCall, ToolUse, Transcript, Turn

# Needs exponential time on a string of a's that ends in something else.
HANGS = "^(a|a)*$"
VICTIM = "a" * 60 + "!"


def run(checks: Sequence[Check], expectation: Expectation, transcript: Transcript) -> CheckResult:
    runner: Checker = CheckRunner({item.kind: item for item in checks})
    return evaluated(expectation, transcript, runner=runner)


def result(expectation: Expectation, actual: Any) -> CheckResult:
    return CheckResult(expectation.kind, expectation.label, Outcome.PASSED, 1.0, actual=actual)


@check("last_text")
def last_text(expectation: Expectation, transcript: Transcript) -> CheckResult:
    return result(expectation, transcript.text)


@check("crash")
def crash(expectation: Expectation, transcript: Transcript) -> CheckResult:
    raise RuntimeError(f"cannot read {transcript.text}")


@check("async_crash")
async def async_crash(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> CheckResult:
    raise RuntimeError("no judge")


TALK = Transcript(turns=(Turn("a", (Step("one"),)), Turn("b", (Step("two"),))))


def test_what_is_expected_of_an_answer_that_never_came_is_not_asked_of_another_one() -> None:
    result = run([last_text], Expectation("last_text", "x", turn=3), TALK)
    assert result.outcome is Outcome.SKIPPED
    assert "did not come to this message" in result.message


@pytest.mark.parametrize(("turn", "text"), [(None, "two"), (1, "one"), (2, "two")])
def test_a_check_sees_the_transcript_up_to_its_turn(turn: int | None, text: str) -> None:
    expectation = Expectation("last_text", "x", turn=turn)

    assert run([last_text], expectation, TALK).actual == text


@pytest.mark.parametrize("broken", [crash, async_crash])
def test_a_crash_is_inconclusive_with_its_trace(broken: Check) -> None:
    outcome = run([broken], Expectation(broken.kind, "x"), TALK)

    assert outcome.outcome is Outcome.INCONCLUSIVE
    assert outcome.failure_code is FailureCode.ASSERTION_EVAL_ERROR
    assert outcome.score is None
    assert "RuntimeError" in outcome.message
    assert outcome.trace is not None
    assert outcome.trace.startswith("Traceback")


def test_a_crash_message_holds_no_control_characters() -> None:
    talk = Transcript(turns=(Turn("a", (Step("\x1b[2J\n\u202e"),)),))

    assert run([crash], Expectation("crash", "x"), talk).message.isprintable()


def test_a_check_that_is_not_there_is_inconclusive() -> None:
    outcome = run([], Expectation("unknown", "x"), TALK)

    assert outcome.outcome is Outcome.INCONCLUSIVE
    assert outcome.failure_code is FailureCode.ASSERTION_EVAL_ERROR


def test_cancellation_is_no_crash() -> None:
    @check("waits")
    async def waits(
        expectation: Expectation, transcript: Transcript, context: CheckContext
    ) -> CheckResult:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run([waits], Expectation("waits", "x"), TALK)


def test_the_loop_turns_while_a_slow_check_runs() -> None:
    released = threading.Event()

    async def evaluated() -> CheckResult:
        loop, started = asyncio.get_running_loop(), asyncio.Event()

        @check("waits", slow=lambda expectation, transcript: True)
        def waits(expectation: Expectation, transcript: Transcript) -> CheckResult:
            loop.call_soon_threadsafe(started.set)
            return result(expectation, released.wait(timeout=20))

        runner, context = CheckRunner({"waits": waits}), CheckContext(nobody)
        expectation = Expectation("waits", "x")
        check_task = asyncio.create_task(awaited(expectation, TALK, context, runner))
        await started.wait()
        released.set()
        return await check_task

    assert asyncio.run(evaluated()).actual is True


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("pii", {"customPatterns": [{"name": "hangs", "pattern": HANGS}]}),
        ("schema", {"schema": {"pattern": HANGS}}),
        ("tool_called", {"tool": "find", "argsSchema": {"patternProperties": {HANGS: True}}}),
    ],
)
def test_the_loop_turns_while_patterns_of_the_user_are_searched(
    kind: str, params: dict[str, Any]
) -> None:
    use = ToolUse(ToolCall("c", "find", {VICTIM: 1}), None, "defaultResponse")
    step = Step(VICTIM if kind == "pii" else json.dumps(VICTIM), (use,))
    talk = Transcript(turns=(Turn("a", (step,)),))
    finished: list[str] = []

    async def work() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        finished.append("work")

    async def checking() -> CheckResult:
        context = CheckContext(nobody)
        found = await awaited(Expectation(kind, "x", params), talk, context)
        finished.append("check")
        return found

    async def both() -> CheckResult:
        found, _ = await asyncio.gather(checking(), work())
        return found

    assert asyncio.run(both()).outcome is Outcome.INCONCLUSIVE
    assert finished == ["work", "check"]


def test_a_check_that_is_not_slow_stays_in_the_thread_of_the_loop() -> None:
    @check("where", slow=lambda expectation, transcript: transcript.text == "two")
    def where(expectation: Expectation, transcript: Transcript) -> CheckResult:
        return result(expectation, threading.current_thread() is threading.main_thread())

    assert run([where], Expectation("where", "x", turn=1), TALK).actual is True
    assert run([where], Expectation("where", "x"), TALK).actual is False


def test_a_slow_check_that_crashes_is_inconclusive_with_its_trace() -> None:
    @check("crash", slow=lambda expectation, transcript: True)
    def crashes(expectation: Expectation, transcript: Transcript) -> CheckResult:
        raise RuntimeError("in a thread")

    outcome = run([crashes], Expectation("crash", "x"), TALK)

    assert outcome.failure_code is FailureCode.ASSERTION_EVAL_ERROR
    assert "in a thread" in (outcome.trace or "")


def test_every_check_of_the_suite_format_is_found() -> None:
    assert discover().keys() >= {
        "schema",
        "contains",
        "not_contains",
        "max_length",
        "pii",
        "keywords_deny",
        "keywords_allow",
        "tool_called",
        "tool_not_called",
        "tool_strict",
        "trajectory",
        "latency",
        "cost",
        "judge",
        "drift",
    }


def test_two_checks_of_one_kind_are_an_error() -> None:
    @check("last_text")
    def another(expectation: Expectation, transcript: Transcript) -> CheckResult:
        return result(expectation, None)

    module = ModuleType("plugin")
    vars(module).update(one=last_text, same=last_text)
    assert collect([module]) == {"last_text": last_text}

    vars(module).update(other=another)
    with pytest.raises(ValueError, match="two checks serve 'last_text'"):
        collect([module])


@check("turns_seen")
def turns_seen(expectation: Expectation, transcript: Transcript) -> CheckResult:
    return result(expectation, [turn.user for turn in transcript.turns])


@pytest.mark.parametrize(
    ("turn", "alone", "seen"),
    [
        (None, False, ["1", "2", "3"]),
        (2, False, ["1", "2"]),
        (2, True, ["2"]),
        (3, True, ["3"]),
    ],
)
def test_an_expectation_of_a_turn_sees_what_it_asks_for(
    turn: int | None, alone: bool, seen: list[str]
) -> None:
    transcript = Transcript(turns=tuple(Turn(user, (Step("a"),)) for user in "123"))
    expectation = Expectation("turns_seen", "t", turn=turn, alone=alone)
    assert run([turns_seen], expectation, transcript).actual == seen


@check("evidence")
def evidence(expectation: Expectation, transcript: Transcript) -> CheckResult:
    found = (Evidence("output", 0, 3), Evidence("tool[0].arguments", 0, 2, excerpt="**"))
    return CheckResult("evidence", "e", Outcome.FAILED, evidence=found)


@pytest.mark.parametrize(
    ("turn", "alone", "sources"),
    [
        (None, False, [("output", None), ("tool[0].arguments", "**")]),
        (1, True, [("turn[1].output", "one"), ("tool[0].arguments", "**")]),
        (2, True, [("output", None), ("tool[1].arguments", "**")]),
        (2, False, [("output", None), ("tool[0].arguments", "**")]),
    ],
)
def test_evidence_of_a_turn_is_placed_in_the_conversation(
    turn: int | None, alone: bool, sources: list[tuple[str, str | None]]
) -> None:
    uses = (ToolUse(ToolCall("c", "t", {}), None, "agent"),)
    turns = tuple(Turn("q", (Step(text, uses),)) for text in ("one", "two"))
    expectation = Expectation("evidence", "e", turn=turn, alone=alone)
    found = run([evidence], expectation, Transcript(turns=turns)).evidence
    assert [(one.source, one.excerpt) for one in found] == sources


def test_what_a_check_that_asks_computes_aside_runs_in_the_thread_of_checks() -> None:
    @check("aside")
    async def aside(
        expectation: Expectation, transcript: Transcript, context: CheckContext
    ) -> CheckResult:
        return result(expectation, await context.aside(lambda: threading.current_thread().name))

    found = run([aside], Expectation("aside", "a"), Transcript())
    assert found.actual.startswith("kindlm-checks")
