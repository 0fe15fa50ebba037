"""The verdict of EvalView 0.8 on a test, for those who compare: `--compat evalview`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kindlm.checks.evalview_rules import reasons
from kindlm.checks.registry import Reads, check
from kindlm.checks.results import failed, passed
from kindlm.outcome import CheckResult, FailureCode, Outcome, Status, execution_status
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import listed, shown

__all__ = ["evalview_verdict"]

_MAX_LISTED = 3


@check("evalview_verdict", reads=Reads.EVERYTHING)
async def evalview_verdict(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> list[CheckResult]:
    """The test passes by the rules of EvalView (`evalview_rules`).

    It looks at the results of the expectations before it, which have to be all others of the
    test. Where kindlm's own verdict on them is another one, the message says so.

    Params: `minScore`; `maxCost` in US dollars and `maxLatency` in milliseconds, or None;
    `forbiddenTools`; `pii`: personal data fails it; `turns`, each None or with `tools`,
    `forbiddenTools`, `contains` and `notContains`; `allowHallucination`; `localJudge`: the judge is
    a model that runs here; `safety`, with `allowHarmful`, `categories` and `severityThreshold`;
    `judged`: by their kind, the labels of the expectations of hallucination and safety that are
    about the whole test, since those of turns decide nothing in EvalView; `undeclared`: kind and
    label of each expectation that EvalView adds by itself, or that only advises without it, and
    that kindlm's own verdict does not count.
    """
    params, earlier = expectation.params, context.earlier
    score = _score_of(earlier)
    why = list(reasons(params, transcript, score, _judged(params, earlier)))
    own = _own_verdict(params, earlier)
    actual = {"score": score, "passed": not why, "reasons": why, "kindlm": own.value}
    other = _difference(params, earlier, own, passes=not why)
    if not why:
        return [passed(expectation, score=round(score / 100, 6), actual=actual, message=other)]
    return [
        failed(
            expectation,
            FailureCode.ORIGINAL_VERDICT_FAILED,
            f"EvalView fails the test: {'; '.join(why)}. {other}".rstrip(),
            actual=actual,
            score=round(score / 100, 6),
        )
    ]


def _score_of(earlier: Sequence[CheckResult]) -> float:
    """Return the weighted score, from 0 to 100: what stands in for it where the judge failed."""
    told: Any = next(one.actual for one in reversed(earlier) if one.kind == "weighted_score")
    return float(told.get("fallbackScore", told["score"]))


def _judged(
    params: Mapping[str, Any], earlier: Sequence[CheckResult]
) -> dict[str, Mapping[str, Any]]:
    """Return what was found of hallucinations and safety, by kind."""
    labels = params.get("judged") or {}
    return {
        one.kind: one.actual
        for one in earlier
        if labels.get(one.kind) == one.label and isinstance(one.actual, Mapping)
    }


def _counting(params: Mapping[str, Any], earlier: Sequence[CheckResult]) -> list[CheckResult]:
    undeclared = {(kind, label) for kind, label in params.get("undeclared") or ()}
    return [one for one in earlier if (one.kind, one.label) not in undeclared]


def _own_verdict(params: Mapping[str, Any], earlier: Sequence[CheckResult]) -> Status:
    return execution_status([one.outcome for one in _counting(params, earlier)])


def _difference(
    params: Mapping[str, Any], earlier: Sequence[CheckResult], own: Status, *, passes: bool
) -> str:
    """Return a sentence about kindlm's own verdict, nothing if it is the same."""
    if (own is Status.PASSED) is passes:
        return ""
    if own is Status.PASSED:
        return "By kindlm's own rules it passes."
    wrong = [
        f"{one.kind} {shown(one.label)}"
        for one in _counting(params, earlier)
        if one.outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE)
    ]
    first = listed(wrong[:_MAX_LISTED], len(wrong))
    return f"EvalView passes the test. By kindlm's own rules it is {own.value}: {first}."
