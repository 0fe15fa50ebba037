"""Evaluates expectations with the checks that serve them, and turns crashes into results."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence

from kindlm.checks.registry import Check, discover
from kindlm.checks.results import undecided
from kindlm.outcome import CheckResult, FailureCode
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import shown

__all__ = ["CheckRunner"]


class CheckRunner:
    """Evaluates any expectation; implements `Checker`.

    A check that crashes decides nothing and costs no other check its result: the outcome is
    inconclusive, with the traceback for `--verbose`.
    """

    def __init__(self, checks: Mapping[str, Check] | None = None) -> None:
        self._checks = discover() if checks is None else checks

    async def evaluate(
        self, expectation: Expectation, transcript: Transcript, context: CheckContext
    ) -> Sequence[CheckResult]:
        """Return one result for each thing the expectation asks for, at least one."""
        check = self._checks.get(expectation.kind)
        if check is None:
            return [_crashed(expectation, f"No check is named {shown(expectation.kind)}.")]
        if expectation.turn is not None:
            transcript = transcript.prefix(expectation.turn)
        try:
            if check.pure is not None:
                results = check.pure(expectation, transcript)
            else:
                assert check.asking is not None
                results = await check.asking(expectation, transcript, context)
        except Exception as error:  # noqa: BLE001 - the boundary where a crash becomes a result
            message = f"The check crashed: {type(error).__name__}: {shown(str(error))}"
            return [_crashed(expectation, message, "".join(traceback.format_exception(error)))]
        return results or [_crashed(expectation, "The check gave no result.")]


def _crashed(expectation: Expectation, message: str, trace: str | None = None) -> CheckResult:
    return undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, message, trace=trace)
