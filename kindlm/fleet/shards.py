"""Into how many shards a run is divided for its workers, and which of them goes first."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from kindlm.history.baselines import find_baseline
from kindlm.plan import Plan
from kindlm.recording.recorded_sources import cassette_runs
from kindlm.suite import Suite

PER_WORKER = 4
"""Shards for each worker, so that none waits long for the others at the end."""

Took: TypeAlias = Mapping[tuple[str, str, str], float]
"""What a repeat of a test took, in milliseconds: by path of the suite, test, target."""

# Of a run on workers, each shard has a row in `suites`.
_TOOK = """
SELECT e.test, e.target, avg(e.latency_ms)
  FROM executions e
 WHERE e.latency_ms > 0
   AND e.suite IN (SELECT s.id FROM suites s JOIN runs r ON r.id = s.run
                    WHERE s.project = ? AND s.name = ? AND r.mode = 'live'
                    ORDER BY s.started_at DESC LIMIT 64)
 GROUP BY e.test, e.target
"""


def shard_count(plan: Plan, workers: int) -> int:
    """Return into how many shards a plan is divided: no more than it has tests, but for one."""
    return max(1, min(PER_WORKER * workers, sum(1 for _ in _tests(plan))))


def longest_first(plan: Plan, count: int, took: Took) -> list[int]:
    """Return the numbers of the shards, from 1, the one that takes longest first.

    What the history does not know takes as long as the others do on average.
    """
    usual = sum(took.values()) / len(took) if took else 1.0
    sums = [0.0] * count
    for position, (key, repeats) in enumerate(_tests(plan)):
        sums[position % count] += took.get(key, usual) * repeats
    return sorted(range(1, count + 1), key=lambda shard: -sums[shard - 1])


def _tests(plan: Plan) -> Iterator[tuple[tuple[str, str, str], int]]:
    """Yield the tests in the order in which they are dealt to shards, with their repeats."""
    for planned in plan.suites:
        for entry in planned.cases:
            for target in entry.targets:
                yield (planned.suite.path, entry.case.name, target), entry.repeat


def read_took(db: sqlite3.Connection, suites: Sequence[Suite]) -> Took:
    """Return what the tests of suites took lately."""
    return {
        (suite.path, test, target): took
        for suite in suites
        for test, target, took in db.execute(_TOOK, (suite.project, suite.name))
    }


def runs_needed(db: sqlite3.Connection, plan: Plan) -> list[str]:
    """Return the recorded runs that tests of a plan refer to: baselines and cassettes."""
    needed: dict[str, None] = {}
    for planned in plan.suites:
        baseline = find_baseline(db, planned.suite.project, planned.suite.name)
        if baseline is not None and baseline.here:
            needed |= dict.fromkeys(baseline.runs)
        needed |= dict.fromkeys(cassette_runs(planned, db))
    return list(needed)
