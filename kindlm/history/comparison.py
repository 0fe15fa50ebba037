"""How the tests of one run did against those of another: pass rates, failures, outputs.

A difference of pass rates counts as it stands. Whether the number of repeats supports it is not
asked here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kindlm.history.baselines import output_of
from kindlm.history.compared_attempts import Attempts
from kindlm.history.run_view import RunView
from kindlm.history.verdict import StatusCounts, test_status
from kindlm.outcome import Status

__all__ = ["Change", "Identity", "TestComparison", "TestResult", "compare_tests", "results_of"]

_EPSILON = 0.001
_ROUNDING = 1e-9


def _failure_codes(attempts: Attempts) -> str:
    return f"""
SELECT a.failure_code
  FROM executions e
  JOIN assertions a ON a.execution = e.id AND a.attempt = {attempts.checked}
 WHERE e.suite = :suite AND e.test = :test AND e.target = :target
   AND a.failure_code IS NOT NULL AND NOT a.advisory
UNION
SELECT {attempts.came_to("error_code")} FROM executions e {attempts.joined}
 WHERE e.suite = :suite AND e.test = :test AND e.target = :target
   AND {attempts.came_to("error_code")} IS NOT NULL
"""  # noqa: S608 (constants of this package)


_FIRST_COUNTS = f"""
SELECT count(*) FILTER (WHERE status = 'passed'), count(*) FILTER (WHERE status = 'failed'),
       count(*) FILTER (WHERE status = 'errored')
  FROM (SELECT {Attempts.FIRST.came_to("status")} AS status
          FROM executions e {Attempts.FIRST.joined}
         WHERE e.suite = :suite AND e.test = :test AND e.target = :target)
"""  # noqa: S608 (constants of this package)

_SUITE = "SELECT id FROM suites WHERE run = ? AND name = ? ORDER BY ordinal LIMIT 1"

_DEFINED = "SELECT test, target FROM planned_tests WHERE suite = ? ORDER BY ordinal"


class Identity(NamedTuple):
    """What identifies a test in its suite."""

    name: str
    target: str


class Change(StrEnum):
    """What became of a test. Not run: it is still defined, but nothing of it was tested."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    ADDED = "added"
    REMOVED = "removed"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class TestResult:
    """How a test did over its repeats. `pass_rate` is None if nothing of it was tested."""

    __test__ = False  # not a pytest class

    pass_rate: float | None
    repeats: int = 0
    status: Status = Status.SKIPPED
    failure_codes: frozenset[str] = frozenset()
    output: str | None = None


@dataclass(frozen=True, slots=True)
class TestComparison:
    """A test before and after; None where it is not defined."""

    __test__ = False  # not a pytest class

    test: Identity
    change: Change
    before: TestResult | None
    after: TestResult | None

    @property
    def new_failure_codes(self) -> list[str]:
        """Reasons to fail that the test did not have before."""
        if self.after is None:
            return []
        known = self.before.failure_codes if self.before else frozenset()
        return sorted(self.after.failure_codes - known)

    @property
    def output_changed(self) -> bool:
        """Whether the text that stands for the test is another one, if it ran on both sides."""
        if not _tested(self.before) or not _tested(self.after):
            return False
        assert self.before is not None
        assert self.after is not None
        return self.before.output != self.after.output

    @property
    def fails(self) -> bool:
        """Whether this is what a comparison looks out for."""
        return self.change in (Change.REGRESSED, Change.REMOVED)


def compare_tests(
    before: Mapping[Identity, TestResult], after: Mapping[Identity, TestResult]
) -> list[TestComparison]:
    """Compare tests by their pass rates, in the order of `after`, and then what was removed.

    Rates up to 0.001 apart are the same. A test that was not tested before either can't be missed.
    """
    compared = [
        TestComparison(test, _change(before.get(test), result), before.get(test), result)
        for test, result in after.items()
    ]
    removed = [
        TestComparison(test, Change.REMOVED, result, None)
        for test, result in before.items()
        if test not in after and _tested(result)
    ]
    return compared + removed


def results_of(
    db: sqlite3.Connection, run: RunView, suite: str, attempts: Attempts = Attempts.LAST
) -> dict[Identity, TestResult]:
    """Return the tests that a suite defined in a run, with how they did there.

    For several suites of a run, hand over the same `RunView`. By their first `attempts`, executions
    that passed only when they were run again count as not passed, and fail for why they were.
    """
    row = db.execute(_SUITE, (run.id, suite)).fetchone()
    if row is None:
        return {}
    identity, untested = row[0], TestResult(None)
    results = {Identity(*row): untested for row in db.execute(_DEFINED, (identity,))}
    for test in run.tests(identity):
        key = Identity(test.name, test.target)
        where = {"suite": identity, "test": key.name, "target": key.target}
        codes = db.execute(_failure_codes(attempts), where)
        counts = test.counts
        if attempts is Attempts.FIRST:
            counts = StatusCounts(*db.execute(_FIRST_COUNTS, where).fetchone())
        results[key] = TestResult(
            pass_rate=counts.pass_rate,
            repeats=counts.tested,
            status=test_status(counts, test.pass_rate_min, test.scores),
            failure_codes=frozenset(row[0] for row in codes),
            output=output_of(db, run.id, suite, *key),
        )
    return results


def _change(before: TestResult | None, after: TestResult) -> Change:
    if after.pass_rate is None:
        return Change.NOT_RUN
    if before is None or before.pass_rate is None:
        return Change.ADDED
    difference = after.pass_rate - before.pass_rate
    if abs(difference) <= _EPSILON + _ROUNDING:
        return Change.UNCHANGED
    return Change.IMPROVED if difference > 0 else Change.REGRESSED


def _tested(result: TestResult | None) -> bool:
    return result is not None and result.pass_rate is not None
