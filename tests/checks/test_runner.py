"""Evaluating checks: it finds them, bounds what they see, and turns crashes into results.

What takes long with a lot of text runs beside the event loop.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest
from evaluated import awaited, demand, evaluated, nobody

from kindlm.checks import CheckRunner
from kindlm.checks.base import (
    AskingCheck,
    Check,
    CheckSection,
    Key,
    all_checks,
    kinds,
    passed,
    sections,
)
from kindlm.checks.drift import Drift, SimilarTo
from kindlm.checks.evalview.honesty import Hallucination, Uncertainty
from kindlm.checks.evalview.weighted_score import WeightedScore
from kindlm.checks.judge import Judge
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.outcome import CheckResult, Demands, Evidence, Outcome
from kindlm.ports import CheckContext, ModelReply, Question
from kindlm.transcript import Step, ToolCall, ToolUse, Transcript, Turn
from kindlm_store import REDACTED

# Needs exponential time on a string of a's that ends in something else.
HANGS = "^(a|a)*$"
VICTIM = "a" * 60 + "!"


def run(check: Check, transcript: Transcript, **more: Any) -> CheckResult:
    return asyncio.run(awaited(check.expected("x", **more), transcript, CheckContext(nobody)))


class LastText(Check):
    kind = "last_text"

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        return passed(actual=transcript.text)


class Crash(Check):
    kind = "crash"

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        raise RuntimeError(f"cannot read {transcript.text}")


class AsyncCrash(AskingCheck):
    kind = "async_crash"

    async def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        raise RuntimeError("no judge")


TALK = Transcript(turns=(Turn("a", (Step("one"),)), Turn("b", (Step("two"),))))


def test_what_is_expected_of_an_answer_that_never_came_is_not_asked_of_another_one() -> None:
    result = run(LastText(), TALK, turn=3)
    assert result.outcome is Outcome.SKIPPED
    assert "did not reach this message" in result.message


@pytest.mark.parametrize(("turn", "text"), [(None, "two"), (1, "one"), (2, "two")])
def test_a_check_sees_the_transcript_up_to_its_turn(turn: int | None, text: str) -> None:
    assert run(LastText(), TALK, turn=turn).actual == text


def test_a_result_has_the_kind_of_its_check_and_the_label_of_its_expectation() -> None:
    result = run(LastText(), TALK)
    assert (result.kind, result.label) == ("last_text", "x")


@pytest.mark.parametrize("broken", [Crash(), AsyncCrash()])
def test_a_crash_is_inconclusive_with_its_trace(broken: Check) -> None:
    outcome = run(broken, TALK)

    assert outcome.outcome is Outcome.INCONCLUSIVE
    assert outcome.failure_code == "ASSERTION_EVAL_ERROR"
    assert outcome.score is None
    assert "RuntimeError" in outcome.message
    assert outcome.trace is not None
    assert outcome.trace.startswith("Traceback")


def test_a_crash_message_holds_no_control_characters() -> None:
    talk = Transcript(turns=(Turn("a", (Step("\x1b[2J\n\u202e"),)),))

    assert run(Crash(), talk).message.isprintable()


def test_cancellation_is_no_crash() -> None:
    class Waits(AskingCheck):
        kind = "waits"

        async def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(Waits(), TALK)


def test_the_loop_turns_while_a_slow_check_runs() -> None:
    released = threading.Event()

    async def found() -> CheckResult:
        loop, started = asyncio.get_running_loop(), asyncio.Event()

        class Waits(Slow):
            def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
                loop.call_soon_threadsafe(started.set)
                return passed(actual=released.wait(timeout=20))

        expectation, context = Waits("").expected("x"), CheckContext(nobody)
        task = asyncio.create_task(awaited(expectation, TALK, context))
        await started.wait()
        released.set()
        return await task

    assert asyncio.run(found()).actual is True


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("pii", {"customPatterns": [{"name": "hangs", "pattern": HANGS}]}),
        ("schema", {"schema": {"pattern": HANGS}}),
        ("tool_called", {"tool": "find", "argsSchema": {"patternProperties": {HANGS: True}}}),
    ],
)
@pytest.mark.usefixtures("impatient_patterns")
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
        found = await awaited(demand(kind, "x", params), talk, context)
        finished.append("check")
        return found

    async def both() -> CheckResult:
        found, _ = await asyncio.gather(checking(), work())
        return found

    assert asyncio.run(both()).outcome is Outcome.INCONCLUSIVE
    assert finished == ["work", "check"]


@dataclass(frozen=True, slots=True)
class Slow(Check):
    kind = "slow"

    text: str

    def is_slow(self, transcript: Transcript) -> bool:
        return transcript.text.endswith(self.text)

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        return passed(actual=threading.current_thread() is threading.main_thread())


def test_a_check_that_is_not_slow_stays_in_the_thread_of_the_loop() -> None:
    assert run(Slow("two"), TALK, turn=1).actual is True
    assert run(Slow("two"), TALK).actual is False


def test_a_slow_check_that_crashes_is_inconclusive_with_its_trace() -> None:
    class Crashes(Slow):
        def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
            raise RuntimeError("in a thread")

    outcome = run(Crashes(""), TALK)

    assert outcome.failure_code == "ASSERTION_EVAL_ERROR"
    assert "in a thread" in (outcome.trace or "")


def test_no_two_checks_have_the_same_kind() -> None:
    found = [kind for check in all_checks() for kind in check.kinds()]
    assert len(found) == len(set(found)) > 30
    assert kinds() == {*found}


def test_every_check_says_what_its_failure_means() -> None:
    assert [check for check in all_checks() if not hasattr(check, "demands")] == []


def test_no_two_sections_have_the_same_key() -> None:
    keys = [section.key.name for section in sections()]
    assert len(keys) == len({*keys}) > 5


class TurnsSeen(Check):
    kind = "turns_seen"

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        return passed(actual=[turn.user for turn in transcript.turns])


@pytest.mark.parametrize(
    ("turn", "since", "seen"),
    [
        (None, 1, ["1", "2", "3"]),
        (2, 1, ["1", "2"]),
        (2, 2, ["2"]),
        (3, 2, ["2", "3"]),
        (3, 3, ["3"]),
    ],
)
def test_an_expectation_of_a_turn_sees_what_it_asks_for(
    turn: int | None, since: int, seen: list[str]
) -> None:
    transcript = Transcript(turns=tuple(Turn(user, (Step("a"),)) for user in "123"))
    assert run(TurnsSeen(), transcript, turn=turn, since=since).actual == seen


@pytest.mark.parametrize(
    ("reports", "unseen", "is_decided"),
    [([True, False], None, True), ([False, False], None, False), ([True, False], "cut off", False)],
)
def test_a_later_turn_shows_its_tools_if_an_earlier_one_does(
    reports: list[bool], unseen: str | None, is_decided: bool
) -> None:
    steps = [Step("a", reports_tools=each) for each in reports]
    steps[0] = replace(steps[0], unseen=unseen)
    talk = Transcript(turns=tuple(Turn("q", (step,)) for step in steps))
    check = demand("tool_not_called", "x", {"tool": "refund"}, turn=2, since=2)
    assert (evaluated(check, talk).outcome is Outcome.PASSED) == is_decided


IN_TEXT = (Step(REDACTED), Step("Done."))
IN_LAST_TEXT = (Step("Hm."), Step(f"It is {REDACTED}."))
IN_ARGUMENTS, IN_MALFORMED, IN_RESULT = (
    (Step("Done.", (ToolUse(call, response),)),)
    for call, response in (
        (ToolCall("c", "t", {"key": REDACTED}), None),
        (ToolCall("c", "t", {}, REDACTED), None),
        (ToolCall("c", "t", {}), {"key": REDACTED}),
    )
)


@pytest.mark.parametrize("reads_text", [True, False])
@pytest.mark.parametrize(
    "steps", [IN_TEXT, IN_LAST_TEXT, IN_ARGUMENTS, IN_MALFORMED, IN_RESULT, (Step("Done."),)]
)
def test_what_a_record_has_in_place_of_a_secret_decides_nothing(
    steps: tuple[Step, ...], reads_text: bool
) -> None:
    check = type("Looks", (LastText,), {"reads_text": reads_text})()
    talk = Transcript(turns=(Turn("q", steps),))
    assert run(check, talk).outcome is Outcome.PASSED
    is_undecided = run(check, talk.from_record()).outcome is Outcome.INCONCLUSIVE
    assert is_undecided == (reads_text and steps != (Step("Done."),))


@pytest.mark.parametrize(
    "check",
    [
        WeightedScore(50),
        WeightedScore(50, judged=True),
        Uncertainty(),
        Hallucination(0.9),
        Drift(method="field-diff"),
        SimilarTo(text="Done.", method="embedding"),
    ],
)
def test_a_check_that_also_reads_without_a_judge_decides_nothing_without_the_secret(
    check: Check,
) -> None:
    result = run(check, Transcript(turns=(Turn("q", IN_LAST_TEXT),)).from_record())
    assert "[redacted] in place of a secret" in result.message


@pytest.mark.parametrize("check", [Judge(criteria="kind"), Uncertainty(judged=True)])
def test_a_judge_sees_the_mark_in_place_of_a_secret(check: Check) -> None:
    result = run(check, Transcript(turns=(Turn("q", IN_LAST_TEXT),)).from_record())
    assert "[redacted] in place of a secret" not in result.message


class Finds(Check):
    kind = "finds"

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        own = Evidence("a place of its own", 0, 1)
        found = (Evidence("output", 0, 3), Evidence("tool[0].arguments", 0, 2, excerpt="**"), own)
        return CheckResult("", "", Outcome.FAILED, evidence=found)


@pytest.mark.parametrize(
    ("turn", "since", "sources"),
    [
        (None, 1, [("output", None), ("tool[0].arguments", "**")]),
        (1, 1, [("turn[1].output", "one"), ("tool[0].arguments", "**")]),
        (2, 2, [("output", None), ("tool[1].arguments", "**")]),
        (2, 1, [("output", None), ("tool[0].arguments", "**")]),
    ],
)
def test_evidence_of_a_turn_is_placed_in_the_conversation(
    turn: int | None, since: int, sources: list[tuple[str, str | None]]
) -> None:
    uses = (ToolUse(ToolCall("c", "t", {}), None, "agent"),)
    turns = tuple(Turn("q", (Step(text, uses),)) for text in ("one", "two"))
    found = run(Finds(), Transcript(turns=turns), turn=turn, since=since).evidence
    assert [(one.source, one.excerpt) for one in found] == [*sources, ("a place of its own", None)]


def test_what_a_check_that_asks_computes_aside_runs_in_the_thread_of_checks() -> None:
    class Aside(AskingCheck):
        kind = "aside"

        async def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
            return passed(actual=await context.aside(lambda: threading.current_thread().name))

    assert run(Aside(), Transcript()).actual.startswith("kindlm-checks")


def test_a_section_without_a_kind_has_its_key_as_kind() -> None:
    class WordCount(CheckSection):
        key = Key("wordCount")
        demands = Demands.TASK

    class Named(CheckSection):
        key = Key("wordCount")
        kind = "words"
        demands = Demands.TASK

    assert (WordCount.kinds(), WordCount().label) == (("word_count",), "word_count")
    assert Named.kinds() == ("words",)


DOWN = Err(KindlmError(ErrorCode.PROVIDER_RATE_LIMIT, "rate limited"))


class Counting(ThreadPoolExecutor):
    """A thread that counts what it was given to do."""

    def __init__(self) -> None:
        super().__init__(1)
        self.given = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        self.given += 1
        return super().submit(function, *args, **more)


async def _answers(question: Question) -> Result[ModelReply]:
    return Ok(ModelReply("no answer", "no answer", 1.0))


async def _is_down(question: Question) -> Result[ModelReply]:
    return DOWN


@pytest.mark.parametrize(
    ("kind", "params", "alone"),
    [
        ("uncertainty", {"judged": True}, 1),
        ("guardrail", {"must": "be kind"}, 1),
        ("safety", {}, 1),
        ("hallucination", {"confidenceThreshold": 0.8}, 2),
        ("weighted_score", {"judged": True, "minScore": 50}, 2),
    ],
)
def test_questions_and_answers_of_a_judge(
    said: Callable[..., Transcript], kind: str, params: Mapping[str, Any], alone: int
) -> None:
    """`alone` is what is looked for without the judge, which is asked twice."""
    for ask, parts in ((_is_down, 1), (_answers, 2)):
        with Counting() as thread:
            runner, expectation = CheckRunner(thread=thread), demand(kind, "l", params)
            evaluated(expectation, said("Well."), ask, runner)
            assert thread.given == alone + 2 * parts


def test_all_phrases_are_searched_in_one_go(said: Callable[..., Transcript]) -> None:
    with Counting() as thread:
        runner = CheckRunner(thread=thread)
        evaluated(demand("uncertainty", "l", {}), said(" "), _is_down, runner)
        assert thread.given == 1
