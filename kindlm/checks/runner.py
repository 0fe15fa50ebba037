"""Evaluates expectations with the checks that serve them, and turns crashes into results."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

from kindlm.checks.registry import Check, discover
from kindlm.checks.results import skipped, undecided
from kindlm.checks.taken_out import undecided_for_a_secret
from kindlm.checks.turn_evidence import in_conversation
from kindlm.checks.unreported_calls import unless_unreported
from kindlm.json_schema_keywords import Budget, one_budget
from kindlm.outcome import CheckResult, FailureCode
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import shown

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

    async def evaluate(
        self, expectation: Expectation, transcript: Transcript, context: CheckContext
    ) -> Sequence[CheckResult]:
        """Return one result for each thing the expectation asks for, at least one."""
        check = self._checks.get(expectation.kind)
        if check is None:
            return [_crashed(expectation, f"No check is named {shown(expectation.kind)}.")]
        if expectation.turn is not None and expectation.turn > len(transcript.turns):
            return [skipped(expectation, "The conversation did not come to this message.")]
        try:
            seen = _seen(transcript, expectation)
            lacking = undecided_for_a_secret(expectation, seen, asks=check.pure is None)
            if lacking is not None:
                return [lacking]
            results = await self._results(check, expectation, seen, context)
        except Exception as error:  # noqa: BLE001 - the boundary where a crash becomes a result
            return [_crash(expectation, error)]
        return _placed(check, expectation, transcript, seen, results)

    def evaluate_now(
        self, expectation: Expectation, transcript: Transcript, *, slow: bool = False
    ) -> Sequence[CheckResult] | None:
        """Return the results of a check that asks nobody, and takes no time unless it may."""
        check = self._checks.get(expectation.kind)
        if check is None:
            return [_crashed(expectation, f"No check is named {shown(expectation.kind)}.")]
        if check.pure is None:
            return None
        if expectation.turn is not None and expectation.turn > len(transcript.turns):
            return [skipped(expectation, "The conversation did not come to this message.")]
        try:
            seen = _seen(transcript, expectation)
            lacking = undecided_for_a_secret(expectation, seen, asks=False)
            if lacking is not None:
                return [lacking]
            if not slow and check.slow is not None and check.slow(expectation, seen):
                return None
            results = check.pure(expectation, seen)
        except Exception as error:  # noqa: BLE001 - as above
            return [_crash(expectation, error)]
        return _placed(check, expectation, transcript, seen, results)

    async def _results(
        self,
        check: Check,
        expectation: Expectation,
        transcript: Transcript,
        context: CheckContext,
    ) -> Sequence[CheckResult]:
        if check.pure is None:
            assert check.asking is not None
            return await check.asking(expectation, transcript, replace(context, aside=self._aside))
        if check.slow is None or not check.slow(expectation, transcript):
            return check.pure(expectation, transcript)
        return await self._aside(partial(check.pure, expectation, transcript))

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


def _placed(
    check: Check,
    expectation: Expectation,
    transcript: Transcript,
    seen: Transcript,
    results: Sequence[CheckResult],
) -> list[CheckResult]:
    """Return results as they count in the whole conversation; the check has `seen` some of it."""
    if check.about_tools:
        results = unless_unreported(expectation, seen, results)
    placed = in_conversation(results, expectation, transcript)
    return placed or [_crashed(expectation, "The check gave no result.")]


def _seen(transcript: Transcript, expectation: Expectation) -> Transcript:
    """Return what an expectation looks at: all, all up to its turn, or that turn by itself."""
    if expectation.turn is None:
        return transcript
    seen = transcript.prefix(expectation.turn)
    if not expectation.alone:
        return seen
    # What an earlier answer shows of the agent holds for this one.
    return replace(seen, turns=seen.turns[-1:], reports_tools=seen.shows_tools)


def _crash(expectation: Expectation, error: Exception) -> CheckResult:
    message = f"The check crashed: {type(error).__name__}: {shown(str(error))}"
    return _crashed(expectation, message, "".join(traceback.format_exception(error)))


def _crashed(expectation: Expectation, message: str, trace: str | None = None) -> CheckResult:
    return undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, message, trace=trace)
