"""What the results mean: the status of a test over its repeats, gates, and the run's verdict.

Pure functions over counts; the rules are those of the design's "Outcomes" and "Gates". Only
`suite_metrics` asks the read models. A suite may have been run in parts, by the shards of a run:
all of them are counted together.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from kindlm.history.queries import among
from kindlm.money import exceeds
from kindlm.outcome import Status
from kindlm.suite import Gate, ScoreLimits

__all__ = [
    "GateResult",
    "LimitedScores",
    "StatusCounts",
    "SuiteMetrics",
    "count_tests",
    "evaluate_gates",
    "is_flaky",
    "rate_decides",
    "suite_metrics",
    "suite_passes",
    "test_status",
]

_TOLERANCE = 1e-9
"""Rates are quotients of small integers; they may differ from a threshold by rounding alone."""


@dataclass(frozen=True, slots=True)
class StatusCounts:
    """How many executions, or tests, came out in which way; `pending` have not come out yet.

    Of a run that was stopped or killed they never will.
    """

    passed: int = 0
    failed: int = 0
    errored: int = 0
    skipped: int = 0
    pending: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.tested + self.untested

    @property
    def tested(self) -> int:
        """All that came out and were not skipped."""
        return self.passed + self.failed + self.errored

    @property
    def untested(self) -> int:
        """All others: what formats for programs, which have no word for pending, call skipped."""
        return self.skipped + self.pending

    @property
    def pass_rate(self) -> float | None:
        """Passed of those not skipped; None if nothing was tested."""
        return self.passed / self.tested if self.tested else None

    def __add__(self, other: StatusCounts) -> StatusCounts:
        """Add the counts of two groups."""
        return StatusCounts(
            self.passed + other.passed,
            self.failed + other.failed,
            self.errored + other.errored,
            self.skipped + other.skipped,
            self.pending + other.pending,
        )


@dataclass(frozen=True, slots=True)
class LimitedScores:
    """The weighted scores of a test that ended with one, 0 to 1, and the limits they have."""

    limits: ScoreLimits
    scores: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        """Their mean; None where nothing was scored."""
        return fmean(self.scores) if self.scores else None

    @property
    def std_dev(self) -> float | None:
        """Their standard deviation as that of a sample; None for fewer than two."""
        return stdev(self.scores) if len(self.scores) > 1 else None

    @property
    def broken(self) -> tuple[str, ...]:
        """What they do not keep to, in words and points of 100; empty if they keep to all of it."""
        return tuple(self._broken())

    def _broken(self) -> Iterator[str]:
        if self.mean is None:
            yield "No repeat has a weighted score, and the scores of this test have limits"
            return
        low, high = self.limits.min_mean, self.limits.max_std_dev
        if low is not None and self.mean < low - _TOLERANCE:
            yield f"The mean weighted score is {_points(self.mean)}, and {_points(low)} is needed"
        # One score says nothing of the spread, for or against.
        if high is not None and self.std_dev is not None and self.std_dev > high + _TOLERANCE:
            yield (
                f"The standard deviation of the weighted scores is {_points(self.std_dev)}, and "
                f"{_points(high)} is the most"
            )


@dataclass(frozen=True, slots=True)
class SuiteMetrics:
    """What the gates of a suite look at. A value that nothing was measured for is None.

    `unknown_costs` counts answers whose price is not known; `narrowed` tells that the run did not
    select all tests; `drift_skipped` counts drift assertions without a baseline.
    """

    executions: StatusCounts
    schema_failures: int = 0
    pii_failures: int = 0
    keyword_failures: int = 0
    judge_average: float | None = None
    drift_maximum: float | None = None
    cost_usd: float | None = None
    unknown_costs: int = 0
    latency_average_ms: float | None = None
    narrowed: bool = False
    drift_skipped: int = 0


@dataclass(frozen=True, slots=True)
class GateResult:
    """What a gate said. `warning` marks one that passed because there was nothing to measure."""

    name: str
    threshold: float
    actual: float | None
    passed: bool
    written: bool
    message: str
    warning: bool = False


def test_status(
    counts: StatusCounts,
    pass_rate_min: float,
    scores: LimitedScores | None = None,  # noqa: PT028 - no function of pytest
) -> Status:
    """Return the status of a test (case x target) from its repeats.

    Where its weighted scores have limits, `scores` are those: it fails if they break one.
    """
    if counts.pass_rate is None:
        return Status.SKIPPED
    if counts.errored:
        return Status.FAILED if counts.failed else Status.ERRORED
    enough = counts.pass_rate >= pass_rate_min - _TOLERANCE and not (scores and scores.broken)
    return Status.PASSED if enough else Status.FAILED


def count_tests(
    counts: StatusCounts, pass_rate_min: float, number: int, scores: LimitedScores | None = None
) -> StatusCounts:
    """Count so many tests whose repeats came out alike; pending are those of which none ended."""
    if counts.total == counts.pending:
        return StatusCounts(pending=number)
    return StatusCounts(**{test_status(counts, pass_rate_min, scores).value: number})


def is_flaky(counts: StatusCounts, passed_later: int = 0) -> bool:
    """Tell whether a test passed in some repeats and failed in others.

    So does one that passed only when it was run again: `passed_later` times.
    """
    return counts.passed > 0 and (counts.failed > 0 or passed_later > 0)


def suite_passes(tests: StatusCounts, gates: Sequence[GateResult]) -> bool:
    """Tell whether a suite passes: gates, errors, and failures unless a written rate decides."""
    if tests.errored or not all(gate.passed for gate in gates):
        return False
    return tests.failed == 0 or rate_decides(gates)


def rate_decides(gates: Sequence[GateResult]) -> bool:
    """Tell whether a pass rate that the user wrote decides how many failures are tolerated."""
    return any(gate.name == "passRateMin" and gate.written for gate in gates)


def suite_metrics(db: sqlite3.Connection, *parts: str) -> SuiteMetrics:
    """Return what the gates of a suite look at; `parts` are its ids in the runs that ran it."""
    executions, latency = _counts(db, parts)
    schema, pii, keyword = _measured(db, _FAILURES, parts)
    drift, drift_skipped = _measured(db, _DRIFT, parts)
    cost, unknown_costs = _spend(db, parts)
    return SuiteMetrics(
        executions=executions,
        schema_failures=schema or 0,
        pii_failures=pii or 0,
        keyword_failures=keyword or 0,
        judge_average=_measured(db, _JUDGE, parts)[0],
        drift_maximum=drift,
        cost_usd=cost,
        unknown_costs=unknown_costs,
        latency_average_ms=latency,
        narrowed=bool(_measured(db, _NARROWED, parts)[0]),
        drift_skipped=drift_skipped or 0,
    )


def evaluate_gates(gates: Sequence[Gate], metrics: SuiteMetrics) -> tuple[GateResult, ...]:
    """Judge a suite by its gates, in the order they are given."""
    return tuple(_GATES[gate.name](gate, metrics) for gate in gates)


def _pass_rate(gate: Gate, metrics: SuiteMetrics) -> GateResult:
    rate = metrics.executions.pass_rate
    if rate is None:
        return _undecided(gate, metrics, "no execution was tested")
    passed = rate >= gate.threshold - _TOLERANCE
    counts = metrics.executions
    return _result(gate, rate, passed, f"{counts.passed} of {counts.tested} executions passed")


def _failures(name: str) -> Callable[[Gate, SuiteMetrics], GateResult]:
    def judge(gate: Gate, metrics: SuiteMetrics) -> GateResult:
        count: int = getattr(metrics, f"{name}_failures")
        noun = "failure" if count == 1 else "failures"
        return _result(gate, count, count <= gate.threshold, f"{count} {name} {noun}")

    return judge


def _judge_average(gate: Gate, metrics: SuiteMetrics) -> GateResult:
    average = metrics.judge_average
    if average is None:
        return _undecided(gate, metrics, "no judge gave a score")
    passed = average >= gate.threshold - _TOLERANCE
    return _result(gate, average, passed, f"mean judge score {average:.2f}")


def _drift(gate: Gate, metrics: SuiteMetrics) -> GateResult:
    drift = metrics.drift_maximum
    if drift is None:
        return _undecided(gate, metrics, "no drift was measured")
    passed = drift <= gate.threshold + _TOLERANCE
    return _result(gate, drift, passed, f"largest drift {drift:.2f}")


def _cost(gate: Gate, metrics: SuiteMetrics) -> GateResult:
    spent = metrics.cost_usd or 0.0
    if exceeds(spent, gate.threshold):
        return _result(gate, spent, False, f"spent ${spent:.4f}")
    if metrics.unknown_costs:
        calls = "1 call" if metrics.unknown_costs == 1 else f"{metrics.unknown_costs} calls"
        reason = f"the price of {calls} is not known; add it to `prices`, or to `model` of EvalView"
        # Not for want of something to measure: an unknown cost may be any cost.
        return GateResult(
            gate.name,
            gate.threshold,
            None,
            not gate.written,
            gate.written,
            reason,
            not gate.written,
        )
    if metrics.cost_usd is None:
        return _undecided(gate, metrics, "nothing was spent")
    return _result(gate, spent, True, f"spent ${spent:.4f}")


def _latency(gate: Gate, metrics: SuiteMetrics) -> GateResult:
    average = metrics.latency_average_ms
    if average is None:
        return _undecided(gate, metrics, "no latency was measured")
    return _result(gate, average, average <= gate.threshold, f"mean latency {average:.0f} ms")


def _result(gate: Gate, actual: float, passed: bool, message: str) -> GateResult:
    return GateResult(gate.name, gate.threshold, actual, passed, gate.written, message)


def _undecided(gate: Gate, metrics: SuiteMetrics, reason: str) -> GateResult:
    """Return the result of a gate without a value.

    It passes with a warning when the selection or a missing baseline left nothing to measure, or
    when the user did not ask for the gate; otherwise a gate that measures nothing fails.
    """
    no_baseline = gate.name == "driftScoreMax" and metrics.drift_skipped > 0
    excused = metrics.narrowed or no_baseline or not gate.written
    hint = " (no baseline yet; run: kindlm baseline set)" if no_baseline else ""
    return GateResult(
        gate.name, gate.threshold, None, excused, gate.written, reason + hint, warning=excused
    )


_GATES: dict[str, Callable[[Gate, SuiteMetrics], GateResult]] = {
    "passRateMin": _pass_rate,
    "schemaFailuresMax": _failures("schema"),
    "judgeAvgMin": _judge_average,
    "driftScoreMax": _drift,
    "piiFailuresMax": _failures("pii"),
    "keywordFailuresMax": _failures("keyword"),
    "costMaxUsd": _cost,
    "latencyMaxMs": _latency,
}


def _points(score: float) -> str:
    """Return a score, or a difference of two, in points of 100."""
    return f"{score * 100:.2f}".rstrip("0").rstrip(".")


_COUNTS = """
SELECT sum(status = 'passed'), sum(status = 'failed'), sum(status = 'errored'),
       sum(status = 'skipped'), sum(status IS NULL),
       avg(CASE WHEN status <> 'skipped' AND answers > 0 THEN latency_ms END)
  FROM executions WHERE suite IN $ids
"""

_FAILURES = """
SELECT sum(a.kind = 'schema'), sum(a.kind = 'pii'),
       sum(a.kind IN ('keywords_deny', 'keywords_allow'))
  FROM executions e
  JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
 WHERE e.suite IN $ids AND a.outcome = 'failed' AND NOT a.advisory
"""

_JUDGE = """
SELECT avg(mean) FROM (
  SELECT avg(a.score) AS mean
    FROM executions e
    JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
   WHERE e.suite IN $ids AND a.kind = 'judge' AND a.score IS NOT NULL
   GROUP BY e.test, e.target, a.label)
"""

_DRIFT = """
SELECT max(1 - a.score), sum(a.outcome = 'skipped')
  FROM executions e
  JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
 WHERE e.suite IN $ids AND a.kind = 'drift'
"""

# What was recorded in another run counts with what it cost there: gates judge what a run did.
_SPEND = """
SELECT sum(cost_usd), coalesce(sum(unknown_costs), 0),
       sum(CASE WHEN purpose <> 'test' THEN cost_then_usd END),
       coalesce(sum(unknown_costs_then), 0)
  FROM spend WHERE suite IN $ids
"""

# A rescored execution has no calls of its own to its target.
_SPENT_THEN = """
SELECT sum(e.cost_then_usd),
       coalesce(sum(e.answers > 0 AND e.cost_then_usd IS NULL AND r.mode = 'rescored'), 0)
  FROM executions e JOIN runs r ON r.id = e.run
 WHERE e.suite IN $ids
"""

# Of the shards of a run, each selects its own tests; nothing is left out if one of them ran it.
_NARROWED = """
SELECT EXISTS (SELECT 1 FROM planned_tests WHERE suite IN $ids
                GROUP BY test, target HAVING NOT max(selected))
"""


def _spend(db: sqlite3.Connection, parts: Sequence[str]) -> tuple[float | None, int]:
    cost, unknown, judges_then, unknown_calls = _measured(db, _SPEND, parts)
    then, unknown_then = _measured(db, _SPENT_THEN, parts)
    known = [usd for usd in (cost, judges_then, then) if usd is not None]
    return sum(known) if known else None, unknown + unknown_calls + unknown_then


def _counts(db: sqlite3.Connection, parts: Sequence[str]) -> tuple[StatusCounts, float | None]:
    *counts, latency = _measured(db, _COUNTS, parts)
    return StatusCounts(*(count or 0 for count in counts)), latency


def _measured(db: sqlite3.Connection, query: str, parts: Sequence[str]) -> tuple[Any, ...]:
    return tuple(db.execute(*among(query, parts)).fetchone())
