"""The check of drift: how far the output is from the one of the active baseline.

Drift is 0 for the same and 1 for as different as can be. The score is its complement, and so is
the threshold to `maxScore`: in a report the higher score is the better one, as everywhere else.
`expected` and `actual` hold the drift itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindlm.checks.drift_methods import Measured, by_embedding, by_fields, by_judge
from kindlm.checks.field_diff import ABSENT
from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed, skipped, undecided
from kindlm.errors import Err, ErrorCode, KindlmError, Result
from kindlm.outcome import CheckResult, FailureCode
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import bounded, shown

__all__ = ["drift"]

_DECIMALS = 12
_LISTED = 20


@check("drift")
async def drift(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> list[CheckResult]:
    """The drift from the baseline's final text is at most `maxScore`.

    Params: `maxScore`; `method`, which is judge, embedding or field-diff; `fields`, the paths that
    field-diff compares, None for all of the baseline. A judge that failed or measured nothing is
    asked once more; after that nobody knows. Of an answer within a conversation the baseline
    holds no counterpart.
    """
    if expectation.turn is not None:
        return [_undecided(expectation, _of_a_turn())]
    if context.baseline_error is not None:
        return [_undecided(expectation, context.baseline_error)]
    if context.baseline is None:
        return [skipped(expectation, "No baseline for this test. Run: kindlm baseline set")]
    measured = await _measure(expectation, context.baseline, transcript.text, context)
    if isinstance(measured, Err):
        return [_undecided(expectation, measured.error)]
    return [_result(expectation, measured.value)]


async def _measure(
    expectation: Expectation, baseline: str, current: str, context: CheckContext
) -> Result[Measured]:
    match expectation.params["method"]:
        case "field-diff":
            return by_fields(baseline, current, expectation.params.get("fields"))
        case "embedding":
            return await by_embedding(baseline, current, context)
    measured = await by_judge(baseline, current, context)
    return await by_judge(baseline, current, context) if isinstance(measured, Err) else measured


def _result(expectation: Expectation, measured: Measured) -> CheckResult:
    limit: float = expectation.params["maxScore"]
    score, threshold = _complement(measured.drift), _complement(limit)
    reasoning = measured.reasoning
    drift, most = _told_apart(measured.drift, limit)
    message = f"Drift {drift} ({measured.basis})"
    if measured.drift <= limit:
        return passed(
            expectation, score=score, threshold=threshold, message=message, reasoning=reasoning
        )
    message += f", expected at most {most}"
    expected: dict[str, Any] = {"maxDrift": limit}
    actual: dict[str, Any] = {"drift": measured.drift}
    if measured.differing:
        fields = measured.differing[:_LISTED]
        expected["fields"] = _values({found.path: found.baseline for found in fields})
        actual["fields"] = _values({found.path: found.current for found in fields})
    return failed(
        expectation,
        FailureCode.DRIFT_EXCEEDED,
        f"{message}: {shown(reasoning, 600)}" if reasoning is not None else message,
        expected=expected,
        actual=actual,
        score=score,
        threshold=threshold,
        reasoning=reasoning,
    )


def _undecided(expectation: Expectation, error: KindlmError) -> CheckResult:
    of_judge = error.code is ErrorCode.JUDGE_EVAL_ERROR
    code = FailureCode.JUDGE_EVAL_ERROR if of_judge else FailureCode.ASSERTION_EVAL_ERROR
    threshold = _complement(expectation.params["maxScore"])
    message = error.message if error.hint is None else f"{error.message.rstrip('.')}. {error.hint}"
    return undecided(expectation, code, message, threshold=threshold)


def _of_a_turn() -> KindlmError:
    return KindlmError(
        ErrorCode.ASSERTION_EVAL_ERROR,
        "Drift is measured from final answers, and this asks for it after an earlier one.",
        "Write it in the `expect` of the test itself.",
    )


def _complement(drift: float) -> float:
    return round(1 - drift, _DECIMALS)


def _values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of fields for a reader; a field that is not there has none."""
    return {path: bounded(value) for path, value in values.items() if value is not ABSENT}


def _told_apart(drift: float, limit: float) -> tuple[str, str]:
    """Return two numbers with as many digits as it takes to see which one is larger."""
    for digits in range(3, _DECIMALS):
        texts = f"{drift:.{digits}g}", f"{limit:.{digits}g}"
        if texts[0] != texts[1] or drift == limit:
            return texts
    return str(drift), str(limit)
