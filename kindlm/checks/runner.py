"""Evaluates expectations with the checks that serve them, and turns crashes into results."""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

from kindlm.checks.calls import how_to_report
from kindlm.checks.registry import Check, Reads, discover
from kindlm.checks.results import skipped, undecided
from kindlm.json_schema_keywords import Budget, one_budget
from kindlm.outcome import CheckResult, Evidence, FailureCode, Outcome
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript, calls_lack_a_secret, text_lacks_a_secret
from kindlm.wording import excerpt, shown

__all__ = ["CheckRunner"]

T = TypeVar("T")


class CheckRunner:
    """Evaluates any expectation; implements `Checker`.

    A check that crashes decides nothing and costs no other check its result: the outcome is
    inconclusive, with the traceback for `--verbose`. One that takes long holds up no other
    execution: the answers of providers are read, and timed, while it goes on.
    """

    def __init__(
        self,
        checks: Mapping[str, Check] | None = None,
        thread: ThreadPoolExecutor | None = None,
    ) -> None:
        self._checks = discover() if checks is None else checks
        # Not a thread of the loop, in which host names are looked up: a request would wait for
        # checks. And one only: time limits of patterns count the processor time of all threads,
        # so that checks side by side would take it from one another, and verdicts depend on that.
        # It starts when the first slow check comes, and ends with those that use it.
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="kindlm-checks")

    def evaluate(
        self,
        expectation: Expectation,
        transcript: Transcript,
        context: CheckContext,
        *,
        now: bool = False,
    ) -> CheckResult | Awaitable[CheckResult]:
        """Return the result, to be awaited if the check asks a model or can take long."""
        check = self._check(expectation)
        if check is None:
            return _crashed(expectation, f"No check is named {shown(expectation.kind)}.")
        if expectation.turn is not None and expectation.turn > len(transcript.turns):
            return skipped(expectation, "The conversation did not come to this message.")
        try:
            seen = transcript if expectation.turn is None else _seen(transcript, expectation)
            if _lacks_a_secret(check, expectation, seen):
                return undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, _TAKEN_OUT)
            if check.pure is None:
                return self._waited_for(check, expectation, transcript, seen, context)
            if check.slow is None or not check.slow(expectation, seen):
                result = check.pure(expectation, seen)
            elif now:
                with one_budget():
                    result = check.pure(expectation, seen)
            else:
                return self._waited_for(check, expectation, transcript, seen, context)
        except Exception as error:  # noqa: BLE001 - the boundary where a crash becomes a result
            return _crash(expectation, error)
        return _placed(check, expectation, transcript, seen, result)

    async def _waited_for(
        self,
        check: Check,
        expectation: Expectation,
        transcript: Transcript,
        seen: Transcript,
        context: CheckContext,
    ) -> CheckResult:
        try:
            if check.asking is not None:
                context = replace(context, aside=self._aside)
                result = await check.asking(expectation, seen, context)
            else:
                assert check.pure is not None
                result = await self._aside(partial(check.pure, expectation, seen))
        except Exception as error:  # noqa: BLE001 - as above
            return _crash(expectation, error)
        return _placed(check, expectation, transcript, seen, result)

    def _check(self, expectation: Expectation) -> Check | None:
        if expectation.of_package:
            from kindlm.checks.of_packages import check_of_package

            return check_of_package(expectation.kind)
        return self._checks.get(expectation.kind)

    async def _aside(self, compute: Callable[[], T]) -> T:
        """Run what can take long in the thread of checks; implements `ports.Aside`.

        When nobody waits for it any more, its validation of JSON ends, and so does the thread.
        """
        budget = Budget()

        def computed() -> T:
            with one_budget(budget):
                return compute()

        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, computed)
        except asyncio.CancelledError:
            budget.stop()
            raise


def _seen(transcript: Transcript, expectation: Expectation) -> Transcript:
    """Return what an expectation of a turn looks at: all up to it, or the turn by itself."""
    assert expectation.turn is not None
    seen = transcript.prefix(expectation.turn)
    if not expectation.alone:
        return seen
    # What an earlier answer shows of the agent holds for this one.
    return replace(seen, turns=seen.turns[-1:], reports_tools=seen.shows_tools)


_TAKEN_OUT = (
    "Here the record has [redacted] in the place of a secret: nobody knows what this would have"
    " found. Run the test again: kindlm test."
)


def _lacks_a_secret(check: Check, expectation: Expectation, seen: Transcript) -> bool:
    """Tell whether a secret was taken out of the record where a check looks.

    To go by the mark that stands in its place would turn verdicts round: an answer that gave a key
    away would look as if it had not.
    """
    reads = check.reads if isinstance(check.reads, Reads) else check.reads(expectation)
    if reads is Reads.NUMBERS_AND_NAMES:
        return False
    steps = [step for turn in seen.turns for step in turn.steps]
    if reads is Reads.TEXT:
        steps = steps[-1:]
    for step in steps:
        if step.recorded and (
            (reads is not Reads.CALLS and text_lacks_a_secret(step))
            or (reads is not Reads.TEXT and calls_lack_a_secret(step))
        ):
            return True
    return False


def _placed(
    check: Check,
    expectation: Expectation,
    transcript: Transcript,
    seen: Transcript,
    result: CheckResult,
) -> CheckResult:
    """Return a result as it counts in the whole conversation; the check has `seen` some of it."""
    if check.about_tools and not seen.shows_tools:
        result = _unreported(expectation, result, how_to_report(seen))
    if expectation.turn is None or not result.evidence:
        return result
    before = len(transcript.prefix(expectation.turn - 1).tool_uses) if expectation.alone else 0
    place = partial(_in_conversation, expectation.turn, transcript, before)
    return replace(result, evidence=tuple(map(place, result.evidence)))


_NO_SIGN = "Nothing shows that the agent reports its tool calls"


def _unreported(expectation: Expectation, result: CheckResult, how: str) -> CheckResult:
    """Return the result of a check about tool calls where nothing shows that they are reported.

    A pass is undecided then. A failure stands: a call that is demanded was not seen, whatever the
    reason.
    """
    if result.outcome is Outcome.FAILED:
        return replace(result, message=f"{result.message} {_NO_SIGN}. {how}.")
    if result.outcome is not Outcome.PASSED:
        return result
    message = f"{_NO_SIGN}, so it may have made calls that kindlm cannot see. {how}."
    return undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, message)


_TOOL = re.compile(r"tool\[(\d+)\](.*)", re.DOTALL)


def _in_conversation(
    turn: int, transcript: Transcript, before: int, evidence: Evidence
) -> Evidence:
    """Return a place in what a check of a turn has seen as one of the whole conversation.

    Its output is no final text, unless the turn is the last one. Where it has seen the turn alone,
    it counted tool calls without those `before`.
    """
    if evidence.source == "output":
        if turn == len(transcript.turns):
            return evidence
        text = transcript.turns[turn - 1].text
        found = evidence.excerpt or excerpt(text[evidence.start : evidence.end])
        return replace(evidence, source=f"turn[{turn}].output", excerpt=found)
    tool = _TOOL.fullmatch(evidence.source)
    if tool is None:
        return evidence
    return replace(evidence, source=f"tool[{int(tool[1]) + before}]{tool[2]}")


def _crash(expectation: Expectation, error: Exception) -> CheckResult:
    message = f"The check crashed: {type(error).__name__}: {shown(str(error))}"
    return _crashed(expectation, message, "".join(traceback.format_exception(error)))


def _crashed(expectation: Expectation, message: str, trace: str | None = None) -> CheckResult:
    return undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, message, trace=trace)
