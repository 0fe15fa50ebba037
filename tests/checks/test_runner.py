"""The runner: finds checks, bounds what they see, and turns crashes into results."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from kindlm.checks import Check, CheckRunner, check, discover
from kindlm.checks.registry import collect
from kindlm.errors import Result
from kindlm.outcome import CheckResult, FailureCode, Outcome
from kindlm.ports import CheckContext, Checker, ModelReply, Question
from kindlm.suite import Expectation
from kindlm.transcript import Step, Transcript, Turn


async def _nobody(question: Question) -> Result[ModelReply]:
    raise AssertionError("this check must not ask a model")


def run(checks: Sequence[Check], expectation: Expectation, transcript: Transcript) -> CheckResult:
    runner: Checker = CheckRunner({item.kind: item for item in checks})
    (result,) = asyncio.run(runner.evaluate(expectation, transcript, CheckContext(_nobody)))
    return result


def result(expectation: Expectation, actual: Any) -> list[CheckResult]:
    return [CheckResult(expectation.kind, expectation.label, Outcome.PASSED, 1.0, actual=actual)]


@check("last_text")
def last_text(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    return result(expectation, transcript.text)


@check("crash")
def crash(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    raise RuntimeError(f"cannot read {transcript.text}")


@check("async_crash")
async def async_crash(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> list[CheckResult]:
    raise RuntimeError("no judge")


@check("nothing")
def nothing(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    return []


TALK = Transcript(turns=(Turn("a", (Step("one"),)), Turn("b", (Step("two"),))))


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


@pytest.mark.parametrize("kind", ["nothing", "unknown"])
def test_no_result_is_inconclusive(kind: str) -> None:
    outcome = run([nothing], Expectation(kind, "x"), TALK)

    assert outcome.outcome is Outcome.INCONCLUSIVE
    assert outcome.failure_code is FailureCode.ASSERTION_EVAL_ERROR


def test_cancellation_is_no_crash() -> None:
    @check("waits")
    async def waits(
        expectation: Expectation, transcript: Transcript, context: CheckContext
    ) -> list[CheckResult]:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run([waits], Expectation("waits", "x"), TALK)


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
    def another(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
        return []

    module = ModuleType("plugin")
    vars(module).update(one=last_text, same=last_text)
    assert collect([module]) == {"last_text": last_text}

    vars(module).update(other=another)
    with pytest.raises(ValueError, match="two checks serve 'last_text'"):
        collect([module])
