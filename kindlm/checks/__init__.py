"""The checks: each decides whether a transcript is as expected.

A module is a section of `expect` in kindlm.yaml and the checks that it makes, or a family of checks
of other front ends. `base` defines what a check is and finds all of them. `CheckRunner` evaluates
them: it limits what a check sees, and turns crashes into results.
"""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from kindlm.checks.base import AskingCheck, Check, Reads, UndecidedError, skipped, undecided
from kindlm.checks.call_matching import why_unknown
from kindlm.dataclass import replace
from kindlm.json_schema_keywords import Budget, UndecidableSchemaError, one_budget
from kindlm.outcome import CheckResult, Evidence
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript, calls_lack_a_secret, text_lacks_a_secret
from kindlm.wording import excerpt, shown

T = TypeVar("T")


class CheckRunner:
    """Evaluates any expectation; implements `ports.Checker`.

    A check that crashes is inconclusive, with the traceback for `--verbose`, and the others go on.
    One that takes long runs in a thread, so that the answers of providers are read, and timed,
    meanwhile.
    """

    def __init__(self, thread: ThreadPoolExecutor | None = None) -> None:
        # Not a thread of the loop's pool, which looks up host names: a request would wait for
        # checks. Only one thread: time limits of patterns count the processor time of all threads,
        # so that parallel checks would shorten each other's limits, and verdicts would depend on
        # that. It starts with the first slow check, and ends with those that use it.
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="kindlm-checks")

    def evaluate(
        self,
        expectation: Expectation,
        transcript: Transcript,
        context: CheckContext,
        *,
        now: bool = False,
    ) -> CheckResult | Awaitable[CheckResult]:
        """Return the result, to be awaited if the check asks a model or can take long.

        A check of tools is undecided where it is not known which were called, whatever is known.
        """
        check: Check = expectation.check
        seen, turn = transcript, expectation.turn
        try:
            if turn is not None:
                if turn > len(transcript.turns):
                    nothing = skipped("The conversation did not come to this message.")
                    return _placed(expectation, transcript, nothing)
                context, seen = replace(context, turn=turn), transcript.prefix(turn)
                if expectation.since > 1:
                    # Earlier answers are valid evidence about the agent for later ones.
                    later = seen.turns[expectation.since - 1 :]
                    shows_tools = seen.shows_tools and seen.unseen is None
                    seen = replace(seen, turns=later, reports_tools=shows_tools)
            found: CheckResult | Awaitable[CheckResult]
            if check.about_tools and (unknown := why_unknown(seen)) is not None:
                found = undecided(unknown)
            elif _lacks_a_secret(check.reads, seen):
                found = undecided(_TAKEN_OUT)
            elif isinstance(check, AskingCheck):
                found = check.evaluate(seen, replace(context, aside=self.aside))
            elif not check.is_slow(seen):
                found = check.evaluate(seen, context)
            elif now:
                with one_budget():
                    found = check.evaluate(seen, context)
            else:
                compute: Callable[[], Any] = partial(check.evaluate, seen, context)
                found = self.aside(compute)
        except Exception as error:  # noqa: BLE001 - the boundary where a crash becomes a result
            found = _without_result(error)
        if isinstance(found, CheckResult):
            return _placed(expectation, transcript, found)
        return _awaited(expectation, transcript, found)

    async def aside(self, compute: Callable[[], T]) -> T:
        """Run a slow computation in the thread of checks; implements `ports.Aside`.

        When the wait for it is cancelled, its validation of JSON ends, and so does the thread.
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


async def _awaited(
    expectation: Expectation,
    transcript: Transcript,
    finding: Awaitable[CheckResult],
) -> CheckResult:
    try:
        found = await finding
    except Exception as error:  # noqa: BLE001 - as above
        found = _without_result(error)
    return _placed(expectation, transcript, found)


def _without_result(error: Exception) -> CheckResult:
    if isinstance(error, UndecidedError):
        return undecided(str(error), error.code)
    if isinstance(error, UndecidableSchemaError):
        return undecided(str(error))
    message = f"The check crashed: {type(error).__name__}: {shown(str(error))}"
    return undecided(message, trace="".join(traceback.format_exception(error)))


_TAKEN_OUT = (
    "The record has [redacted] in place of a secret here, so this cannot be decided."
    " Run the test again: kindlm test."
)


def _lacks_a_secret(reads: Reads, seen: Transcript) -> bool:
    """Return whether a secret was removed from the part of the record that a check reads.

    Checking the mark in its place could reverse the verdict: an answer that revealed a key would
    look as if it had not.
    """
    if reads is Reads.NUMBERS_AND_NAMES:
        return False
    for step in seen.steps[-1:] if reads is Reads.TEXT else seen.steps:
        if step.recorded and (
            (reads is not Reads.CALLS and text_lacks_a_secret(step))
            or (reads is not Reads.TEXT and calls_lack_a_secret(step))
        ):
            return True
    return False


def _placed(expectation: Expectation, transcript: Transcript, found: CheckResult) -> CheckResult:
    """Return a result for the whole conversation; the check has seen a part of it."""
    evidence = found.evidence
    if evidence and expectation.turn is not None:
        turn, before = expectation.turn, len(transcript.prefix(expectation.since - 1).tool_uses)
        evidence = tuple(_in_conversation(turn, transcript, before, each) for each in evidence)
    return replace(found, kind=expectation.kind, label=expectation.label, evidence=evidence)


_TOOL = re.compile(r"tool\[(\d+)\](.*)", re.DOTALL)


def _in_conversation(
    turn: int, transcript: Transcript, before: int, evidence: Evidence
) -> Evidence:
    """Convert a place within a turn's check to one in the whole conversation.

    Its output is not the final text, unless the turn is the last one. It counted tool calls without
    those `before` the first turn that it has seen.
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
