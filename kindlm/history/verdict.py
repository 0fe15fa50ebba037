"""Computes the status of a test from its repeats, the gates, and the verdict of a suite.

`docs/reference/configuration.md` has the rules for users, under `passRate` and "gates".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import astuple
from math import fsum
from operator import add, attrgetter

from kindlm.dataclass import dataclass
from kindlm.history import queries
from kindlm.history.queries import Paid, sum_of
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
    """The weighted scores of the repeats of a test, 0 to 1, and their limits.

    `repeats` counts those that passed or failed. By EvalView's rules, they may do so without a
    score, if the judge fails.
    """

    limits: ScoreLimits
    scores: tuple[float, ...]
    repeats: int = 0

    @property
    def mean(self) -> float | None:
        """Their mean; None without scores."""
        return fsum(self.scores) / len(self.scores) if self.scores else None

    @property
    def std_dev(self) -> float | None:
        """Their standard deviation as a sample; None for fewer than two."""
        from statistics import stdev  # slow to load, and few tests have such scores

        return stdev(self.scores) if len(self.scores) > 1 else None

    @property
    def broken(self) -> tuple[str, ...]:
        """The limits that they break, in words, with points of 100."""
        if self.mean is None:
            return ("No repeat has a weighted score, and the scores of this test have limits",)
        found, known = [], len(self.scores)
        if known < self.repeats:
            found.append(f"A weighted score is known for only {known} of {self.repeats} repeats")
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
class Figures:
    """The figures of a run, or of a suite, which its gates judge; None for what was not measured.

    Costs and tokens are those of all calls, retries included. `paid_then` is the original cost of
    answers that other calls supplied, which are `calls_from_history` of all `calls`. `narrowed` is
    whether a suite has tests that the run did not select; `drift_skipped` counts drift assertions
    without a baseline.
    """

    executions: StatusCounts
    tests: StatusCounts = StatusCounts()
    paid: Paid = Paid()
    paid_then: Paid = Paid()
    schema_failures: int = 0
    pii_failures: int = 0
    keyword_failures: int = 0
    judge_average: float | None = None
    drift_maximum: float | None = None
    drift_skipped: int = 0
    latency_average_ms: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    calls: int = 0
    calls_from_history: int = 0
    narrowed: bool = False

    @property
    def cost_usd(self) -> float | None:
        """The cost for a gate, with answers that other calls supplied at their original cost."""
        return sum_of(self.paid.total_usd, self.paid_then.total_usd)


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


_MEASURES = {
    "passRateMin": (
        "executions.pass_rate",
        "{figures.executions.passed} of {figures.executions.tested} executions passed",
    ),
    "schemaFailuresMax": ("schema_failures", "{actual} schema {failures}"),
    "judgeAvgMin": ("judge_average", "mean judge score {actual:.2f}"),
    "driftScoreMax": ("drift_maximum", "largest drift {actual:.2f}"),
    "piiFailuresMax": ("pii_failures", "{actual} pii {failures}"),
    "keywordFailuresMax": ("keyword_failures", "{actual} keyword {failures}"),
    "costMaxUsd": ("cost_usd", "spent ${actual:.4f}"),
    "latencyMaxMs": ("latency_average_ms", "mean latency {actual:.0f} ms"),
}
"""For each gate the figure that it limits, and the message about it."""


def evaluate_gate(gate: Gate, figures: Figures) -> GateResult:
    """Judge the figures of a suite by a gate."""
    attribute, message = _MEASURES.get(gate.name, (None, ""))
    actual: float | None = attrgetter(attribute)(figures) if attribute else None
    passed = actual is not None and _keeps_to(gate, actual)
    warning = False
    # Unknown costs matter unless the known ones exceed the limit already.
    unpriced = 0
    if gate.name == "costMaxUsd":
        unpriced = figures.paid.unknown + figures.paid_then.unknown
    if actual is not None and not (unpriced and passed):
        failures = "failure" if actual == 1 else "failures"
        message = message.format(actual=actual, figures=figures, failures=failures)
    else:
        # Without a measurement, a gate that the user wrote fails. It passes with a warning if the
        # run selected only some tests, or if there is no baseline yet.
        excused = not gate.written
        message = "nothing was measured"
        if unpriced:
            message = f"the cost of {count(unpriced, 'call')} is not known: a price is missing in"
            message += " `prices`, or in `model` of EvalView, or the answers reported no tokens"
        elif attribute is None:
            excused = False
            message = "this version of kindlm does not know the gate"
        elif gate.name == "driftScoreMax" and figures.drift_skipped:
            excused = True
            message += " (no baseline yet; run: kindlm baseline set)"
        else:
            excused = excused or figures.narrowed
        actual = None
        passed = warning = excused
    return GateResult(
        name=gate.name, threshold=gate.threshold, actual=actual, passed=passed,
        written=gate.written, message=message, warning=warning,
    )  # fmt: skip


def _keeps_to(gate: Gate, actual: float) -> bool:
    if gate.name == "costMaxUsd":
        return not exceeds(actual, gate.threshold)
    if gate.name.endswith("Min"):
        return actual >= gate.threshold - _TOLERANCE
    return actual <= gate.threshold + _TOLERANCE


def figures_of(ask: Callable[[str], sqlite3.Cursor], tests: StatusCounts) -> Figures:
    """Return the figures of a run or a suite with these tests; `ask` runs a query about it."""
    row = ask(queries.FIGURES).fetchone()
    # A rescored run calls no agent.
    agents = 0.0 if row["agents_usd"] is None and row["mode"] == "rescored" else row["agents_usd"]
    then = sum_of(row["agents_then_usd"], row["rescored_then_usd"])
    unknown_then = row["unknown_costs_then"] + int(row["rescored_unknown"])
    return queries.value_of(
        Figures,
        row,
        executions=queries.value_of(StatusCounts, row),
        tests=tests,
        paid=Paid(agents, row["judges_usd"], row["unknown_costs"]),
        paid_then=Paid(then, row["judges_then_usd"], unknown_then),
    )
