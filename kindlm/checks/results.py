"""The results that checks give: one constructor for each way an assertion can come out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kindlm.outcome import CheckResult, Evidence, FailureCode, Outcome
from kindlm.suite import Expectation
from kindlm.wording import sentence

__all__ = ["failed", "passed", "skipped", "undecided"]


def passed(
    expectation: Expectation,
    *,
    score: float = 1.0,
    threshold: float | None = None,
    actual: Any = None,
    message: str = "",
    reasoning: str | None = None,
) -> CheckResult:
    """Return the result of an expectation that was met."""
    return CheckResult(
        kind=expectation.kind,
        label=expectation.label,
        outcome=Outcome.PASSED,
        score=score,
        threshold=threshold,
        actual=actual,
        message=sentence(message) if message else "",
        reasoning=reasoning,
    )


def failed(
    expectation: Expectation,
    code: FailureCode,
    message: str,
    *,
    expected: Any = None,
    actual: Any = None,
    score: float = 0.0,
    threshold: float | None = None,
    evidence: Iterable[Evidence] = (),
    reasoning: str | None = None,
) -> CheckResult:
    """Return the result of an expectation that was not met."""
    return CheckResult(
        kind=expectation.kind,
        label=expectation.label,
        outcome=Outcome.FAILED,
        score=score,
        threshold=threshold,
        expected=expected,
        actual=actual,
        failure_code=code,
        message=sentence(message),
        evidence=tuple(evidence),
        reasoning=reasoning,
    )


def undecided(
    expectation: Expectation,
    code: FailureCode,
    message: str,
    *,
    threshold: float | None = None,
    actual: Any = None,
    trace: str | None = None,
) -> CheckResult:
    """Return the result of an expectation that nobody could decide; it has no score."""
    return CheckResult(
        kind=expectation.kind,
        label=expectation.label,
        outcome=Outcome.INCONCLUSIVE,
        threshold=threshold,
        actual=actual,
        failure_code=code,
        message=sentence(message),
        trace=trace,
    )


def skipped(expectation: Expectation, message: str) -> CheckResult:
    """Return the result of an expectation with nothing to decide; `message` says what to do."""
    return CheckResult(
        kind=expectation.kind,
        label=expectation.label,
        outcome=Outcome.SKIPPED,
        message=sentence(message),
    )
