"""Computes the status of a test from its repeats, the gates, and the verdict of a suite.

`docs/reference/configuration.md` has the rules for users, under `passRate` and "gates".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import astuple
from operator import add, attrgetter
from typing import Any, NamedTuple

from kindlm.dataclass import dataclass
from kindlm.history import queries
from kindlm.money import exceeds
from kindlm.outcome import Gate, GateResult, ScoreLimits, Status
from kindlm.wording import count

_TOLERANCE = 1e-9
"""A rate may differ from a threshold by rounding alone."""


@dataclass(frozen=True, slots=True)
class StatusCounts:
    """The number of executions, or tests, by status; `pending` have not ended, or never will."""

    passed: int = 0
    failed: int = 0
    errored: int = 0
    skipped: int = 0
    pending: int = 0

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return self.tested + self.untested

    @property
    def tested(self) -> int:
        """The number of those that ended and were not skipped."""
        return self.passed + self.failed + self.errored

    @property
    def untested(self) -> int:
        """The number of skipped and pending ones; reports for programs call both skipped."""
        return self.skipped + self.pending

    @property
    def by_status(self) -> dict[str, int]:
        """The counts as reports for programs have them."""
        return {
            "passed": self.passed,
            "failed": self.failed,
            "errored": self.errored,
            "skipped": self.untested,
        }

    @property
    def pass_rate(self) -> float | None:
        """The share of tested ones that passed; None if nothing was tested."""
        return self.passed / self.tested if self.tested else None

    def __add__(self, other: StatusCounts) -> StatusCounts:
        return StatusCounts(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class LimitedScores:
    """The weighted scores of the repeats of a test, 0 to 1, and their limits."""

    limits: ScoreLimits
    scores: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        """Their mean; None without scores."""
        from statistics import fmean  # slow to load, and few tests have such scores

        return fmean(self.scores) if self.scores else None

    @property
    def std_dev(self) -> float | None:
        """Their standard deviation as a sample; None for fewer than two."""
        from statistics import stdev

        return stdev(self.scores) if len(self.scores) > 1 else None

    @property
    def broken(self) -> tuple[str, ...]:
        """The limits that they break, in words, with points of 100."""
        if self.mean is None:
            return ("No repeat has a weighted score, and the scores of this test have limits",)
        found = []
        low, high = self.limits.min_mean, self.limits.max_std_dev
        if low is not None and self.mean < low - _TOLERANCE:
            mean = _points(self.mean)
            found.append(f"The mean weighted score is {mean}, below the minimum of {_points(low)}")
        if high is not None and self.std_dev is not None and self.std_dev > high + _TOLERANCE:
            what = f"The standard deviation of the weighted scores is {_points(self.std_dev)}"
            found.append(f"{what}, above the maximum of {_points(high)}")
        return tuple(found)


def _points(score: float) -> str:
    return f"{score * 100:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class SuiteMetrics:
    """The measurements that the gates of a suite judge; None for those that were not made.

    `unknown_costs` counts answers whose price is not known, `drift_skipped` drift assertions
    without a baseline. `narrowed` is whether the run did not select all tests.
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


def test_status(
    counts: StatusCounts,
    pass_rate_min: float,
    scores: LimitedScores | None = None,  # noqa: PT028 - no function of pytest
) -> Status:
    """Return the status of a test (case x target) from its repeats, and from limited `scores`."""
    if counts.pass_rate is None:
        return Status.SKIPPED
    if counts.errored:
        return Status.FAILED if counts.failed else Status.ERRORED
    enough = counts.pass_rate >= pass_rate_min - _TOLERANCE and not (scores and scores.broken)
    return Status.PASSED if enough else Status.FAILED


def count_tests(
    counts: StatusCounts, pass_rate_min: float, number: int, scores: LimitedScores | None
) -> StatusCounts:
    """Count `number` tests with the same results; they are pending if no repeat ended."""
    if counts.total == counts.pending:
        return StatusCounts(pending=number)
    return StatusCounts(**{test_status(counts, pass_rate_min, scores).value: number})


def is_flaky(counts: StatusCounts, passed_later: int = 0) -> bool:
    """Return whether a test passed in some repeats and failed in others.

    `passed_later` counts repeats that failed first, and passed when they were run again.
    """
    return counts.passed > 0 and (counts.failed > 0 or passed_later > 0)


def suite_passes(
    tests: StatusCounts, executions: StatusCounts, gates: Sequence[GateResult]
) -> bool:
    """Return whether a suite passes.

    No gate may fail, and no execution may have errored. No test may fail, unless a pass rate that
    the user wrote decides.
    """
    if executions.errored or not all(gate.passed for gate in gates):
        return False
    return tests.failed == 0 or rate_decides(gates)


def rate_decides(gates: Sequence[GateResult]) -> bool:
    """Return whether the user wrote a pass rate, so that it decides how many tests may fail."""
    return any(gate.name == "passRateMin" and gate.written for gate in gates)


def evaluate_gates(gates: Sequence[Gate], metrics: SuiteMetrics) -> tuple[GateResult, ...]:
    """Judge a suite by its gates, in their order."""
    return tuple(_evaluate(gate, metrics) for gate in gates)


class _Measure(NamedTuple):
    """An attribute of the metrics, with the messages for a value and for None."""

    attribute: str
    message: str
    lacking: str = ""


_MEASURES = {
    "passRateMin": _Measure(
        "executions.pass_rate",
        "{counts.passed} of {counts.tested} executions passed",
        "no execution was tested",
    ),
    "schemaFailuresMax": _Measure("schema_failures", "{0} schema {failures}"),
    "judgeAvgMin": _Measure("judge_average", "mean judge score {0:.2f}", "no judge gave a score"),
    "driftScoreMax": _Measure("drift_maximum", "largest drift {0:.2f}", "no drift was measured"),
    "piiFailuresMax": _Measure("pii_failures", "{0} pii {failures}"),
    "keywordFailuresMax": _Measure("keyword_failures", "{0} keyword {failures}"),
    "costMaxUsd": _Measure("cost_usd", "spent ${0:.4f}", "nothing was spent"),
    "latencyMaxMs": _Measure(
        "latency_average_ms", "mean latency {0:.0f} ms", "no latency was measured"
    ),
}


def _evaluate(gate: Gate, metrics: SuiteMetrics) -> GateResult:
    measure = _MEASURES[gate.name]
    actual: float | None = attrgetter(measure.attribute)(metrics)
    passed, warning = actual is not None and _keeps_to(gate, actual), False
    # Unknown costs matter unless the known ones exceed the limit already.
    unpriced = metrics.unknown_costs if gate.name == "costMaxUsd" else 0
    if actual is not None and not (unpriced and passed):
        failures = "failure" if actual == 1 else "failures"
        message = measure.message.format(actual, counts=metrics.executions, failures=failures)
    else:
        # Without a measurement, a gate that the user wrote fails. It passes with a warning if the
        # run selected only some tests, or if there is no baseline yet.
        excused, message = not gate.written, measure.lacking
        if unpriced:
            message = f"the price of {count(unpriced, 'call')} is not known; add it to `prices`,"
            message += " or to `model` of EvalView"
        elif gate.name == "driftScoreMax" and metrics.drift_skipped:
            excused = True
            message += " (no baseline yet; run: kindlm baseline set)"
        else:
            excused = excused or metrics.narrowed
        actual, passed, warning = None, excused, excused
    return GateResult(
        name=gate.name, threshold=gate.threshold, actual=actual, passed=passed,
        written=gate.written, message=message, warning=warning,
    )  # fmt: skip


def _keeps_to(gate: Gate, actual: float) -> bool:
    match gate.name:
        case "passRateMin" | "judgeAvgMin":
            return actual >= gate.threshold - _TOLERANCE
        case "driftScoreMax":
            return actual <= gate.threshold + _TOLERANCE
        case "costMaxUsd":
            return not exceeds(actual, gate.threshold)
    return actual <= gate.threshold


def read_numbers(ask: Callable[[str], sqlite3.Cursor]) -> dict[str, Any]:
    """Return the figures of runs or suites, by column; `ask` runs a query about them."""
    came_to, checked, spent = queries.CAME_TO, queries.CHECKED, queries.SPENT
    found = {**ask(came_to).fetchone(), **ask(checked).fetchone(), **ask(spent).fetchone()}
    then = [usd for usd in (found["cost_then_usd"], found["rescored_then_usd"]) if usd is not None]
    return found | {
        "cost_then_usd": sum(then) if then else None,
        "unknown_costs_then": found["unknown_costs_then"] + int(found["unknown_then"]),
    }


def suite_metrics(db: sqlite3.Connection, *parts: str) -> SuiteMetrics:
    """Return the measurements of a suite for its gates; `parts` are its ids in all shards."""

    def ask(query: str) -> sqlite3.Cursor:
        return db.execute(*queries.among(queries.of_suites(query), parts))

    found = read_numbers(ask)
    # Recorded answers of other runs count with their original cost.
    costs = found["all_cost_usd"], found["judge_cost_then_usd"], found["cost_then_usd"]
    known = [usd for usd in costs if usd is not None]
    unknown = found["unknown_costs"], found["unknown_costs_then"]
    return queries.value_of(
        SuiteMetrics,
        found,
        executions=queries.value_of(StatusCounts, found),
        cost_usd=sum(known) if known else None,
        unknown_costs=sum(unknown),
        narrowed=bool(ask(queries.NARROWED).fetchone()[0]),
    )
