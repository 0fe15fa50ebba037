"""The checks: each decides whether a transcript is as expected.

Most modules are a section of `expect` in kindlm.yaml with its checks. `base` defines checks and
finds them. `CheckRunner` evaluates them: it limits what a check sees, and turns crashes into
results.
"""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from kindlm.checks.base import AskingCheck, Check, UndecidedError, in_turn, skipped, undecided
from kindlm.checks.call_matching import why_unknown
from kindlm.dataclass import replace
from kindlm.json_schema_keywords import Budget, UndecidableSchemaError, one_budget
from kindlm.outcome import CheckResult, Evidence
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript, lacks_a_secret
from kindlm.wording import shown

T = TypeVar("T")


class CheckRunner:
    """Evaluates any expectation; implements `ports.Checker`.

    A check that crashes is inconclusive, with the traceback for `--verbose`. A slow check runs in a
    thread, so that answers of providers are read, and timed, meanwhile.
    """

    def __init__(self, thread: ThreadPoolExecutor | None = None) -> None:
        # Not the loop's pool, since it looks up host names: requests would wait for checks. Only
        # one thread, since time limits of patterns count the processor time of all threads:
        # parallel checks would shorten each other's limits.
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="kindlm-checks")

    def evaluate(
        self, expectation: Expectation, transcript: Transcript, context: CheckContext
    ) -> CheckResult | Awaitable[CheckResult]:
        """Return the result, or an awaitable of it if the check asks a model or is slow."""
        check: Check = expectation.check
        seen, turn = transcript, expectation.turn
        try:
            if turn is not None:
                if turn > len(transcript.turns):
                    nothing = skipped("The conversation did not reach this message.")
                    return _placed(expectation, transcript, nothing)
                context, seen = replace(context, turn=turn), transcript.prefix(turn)
                if expectation.since > 1:
                    # Earlier answers may show that the agent reports its tool calls.
                    later = seen.turns[expectation.since - 1 :]
                    shows_tools = seen.shows_tools and seen.unseen is None
                    seen = replace(seen, turns=later, reports_tools=shows_tools)
            found: CheckResult | Awaitable[CheckResult]
            if check.about_tools and (unknown := why_unknown(seen)) is not None:
                found = undecided(unknown)
            elif check.reads_text and any(map(lacks_a_secret, seen.steps)):
                # The mark in its place could reverse the verdict.
                found = undecided(_REDACTED_HERE)
            elif isinstance(check, AskingCheck):
                found = check.evaluate(seen, replace(context, aside=self.aside))
            elif not check.is_slow(seen):
                found = check.evaluate(seen, context)
            elif context.now:
                with one_budget():
                    found = check.evaluate(seen, context)
            else:
                compute: Callable[[], Any] = partial(check.evaluate, seen, context)
                found = self.aside(compute)
        except Exception as error:  # noqa: BLE001 - the boundary where a crash becomes a result
            found = _result_of_error(error)
        if isinstance(found, CheckResult):
            return _placed(expectation, transcript, found)
        result = found

        async def awaited() -> CheckResult:
            try:
                return _placed(expectation, transcript, await result)
            except Exception as error:  # noqa: BLE001 - as above
                return _placed(expectation, transcript, _result_of_error(error))

        return awaited()

    async def aside(self, compute: Callable[[], T]) -> T:
        """Run a slow computation in the thread of checks; implements `ports.Aside`.

        Cancelling it also stops the validation of JSON that it runs, which frees the thread.
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


def _result_of_error(error: Exception) -> CheckResult:
    if isinstance(error, UndecidedError | UndecidableSchemaError):
        return undecided(str(error), getattr(error, "code", UndecidedError.code))
    message = f"The check crashed: {type(error).__name__}: {shown(str(error))}"
    return undecided(message, trace="".join(traceback.format_exception(error)))


_REDACTED_HERE = (
    "The record has [redacted] in place of a secret here, so this cannot be decided."
    " Run the test again: kindlm test."
)


def _placed(expectation: Expectation, transcript: Transcript, found: CheckResult) -> CheckResult:
    """Return a result with its kind and label, and with evidence for the whole conversation.

    The output of a turn becomes `turn[N].output`, unless it is the final text.
    """
    turn, evidence = expectation.turn, found.evidence
    if turn is not None and evidence:
        before = len(transcript.prefix(expectation.since - 1).tool_uses)

        def in_conversation(each: Evidence) -> Evidence:
            if each.source == "output" and turn < len(transcript.turns):
                return in_turn(each, turn, transcript.turns[turn - 1].text)
            moved = _TOOL.sub(lambda at: f"tool[{int(at[1]) + before}]", each.source)
            return replace(each, source=moved)

        evidence = tuple(map(in_conversation, evidence))
    return replace(found, kind=expectation.kind, label=expectation.label, evidence=evidence)


_TOOL = re.compile(r"^tool\[(\d+)\]")
