"""The results of one test: over the repeats of a run, and over many runs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator
from itertools import pairwise
from statistics import fmean, stdev
from typing import NamedTuple

from kindlm.dataclass import dataclass, replace
from kindlm.history.queries import paid_for_test
from kindlm.history.rows import TestView, read_test, test_of
from kindlm.history.run_view import RunView
from kindlm.history.runs import Run, RunFilter, runs
from kindlm.history.statistics import (
    Flakiness,
    flakiness,
    mean_interval,
    pass_at,
    pass_hat,
    wilson_interval,
)
from kindlm.history.statistics.tables import Counts, pooled
from kindlm.outcome import Status
from kindlm.plan import QualifiedName

_SCORES = """
SELECT a.score
  FROM executions e
  JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
 WHERE e.suite = ? AND e.test = ? AND e.target = ?
   AND a.kind = 'weighted_score' AND a.score IS NOT NULL
 ORDER BY e.repeat, e.id
"""

# CROSS JOIN makes SQLite begin with the suites, so that it reads only those of EvalView.
_VERDICTS = """
SELECT e.test, e.target, count(*) AS n, sum(v.body ->> '$.passed') AS evalview,
       sum(v.body ->> '$.kindlm' = 'passed') AS kindlm,
       sum((v.body ->> '$.passed') <> (v.body ->> '$.kindlm' = 'passed')) AS differ
  FROM suites s
 CROSS JOIN executions e ON e.suite = s.id
  JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt AND a.kind = 'evalview_verdict'
  JOIN contents v ON v.ref = a.actual_ref
 WHERE s.id IN $ids AND s.front_end = 'evalview' AND json_valid(v.body)
"""

_OF_TEST = _VERDICTS.replace("IN $ids", "= ?") + " AND e.test = ? AND e.target = ?"

_DIFFERING = _VERDICTS + " GROUP BY e.test, e.target HAVING differ ORDER BY min(e.number)"


class ScoreStatistics(NamedTuple):
    """The weighted scores of repeats, 0 to 1; no deviation and interval for fewer than two."""

    n: int
    mean: float
    std_dev: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class RepeatStatistics:
    """The statistics of a test over its `n` repeats that were tested; errored ones did not pass.

    `interval` contains the pass rate with `confidence`. pass@k and pass^k are for k from 1 to n.
    """

    passed: int
    n: int
    confidence: float
    interval: tuple[float, float]
    pass_at: tuple[float, ...]
    pass_hat: tuple[float, ...]
    score: ScoreStatistics | None


def repeat_statistics(db: sqlite3.Connection, test: TestView) -> RepeatStatistics | None:
    """Return the statistics of a test over its repeats; None if fewer than two were tested."""
    passed, n, level = test.counts.passed, test.counts.tested, test.confidence
    interval = wilson_interval(passed, n, level)
    if n < 2 or interval is None:
        return None
    scores = [row[0] for row in db.execute(_SCORES, (test.suite_id, test.name, test.target))]
    score = None
    if scores:
        spread = stdev(scores) if len(scores) > 1 else None
        score = ScoreStatistics(len(scores), fmean(scores), spread, mean_interval(scores, level))
    return RepeatStatistics(
        passed, n, level, interval, pass_at(passed, n), pass_hat(passed, n), score
    )


class TwoVerdicts(NamedTuple):
    """How many executions pass by the rules of EvalView, by those of kindlm, and only by one."""

    test: str
    target: str
    n: int
    evalview: int
    kindlm: int
    differ: int


def verdicts_of(db: sqlite3.Connection, test: TestView) -> TwoVerdicts | None:
    """Return both verdicts on a test; None if it was not judged by the rules of EvalView."""
    row = db.execute(_OF_TEST, (test.suite_id, test.name, test.target)).fetchone()
    return TwoVerdicts(*row) if row["n"] else None


def differing_verdicts(view: RunView) -> Iterator[TwoVerdicts]:
    """Yield the tests of a run whose two verdicts differ in an execution."""
    for row in view.over_suites(_DIFFERING):
        yield TwoVerdicts(*row)


_SHORT = 8

NOT_COUNTED = frozenset({"rescored", "replayed", "settled"})
"""Modes of runs that do not count over time: old answers, or repeats of suspected tests."""

# CROSS JOIN makes SQLite use the primary key of planned_tests for each suite.
_NAMED = """
SELECT DISTINCT s.project, s.name, p.test, p.target
  FROM suites s
 CROSS JOIN planned_tests p ON p.suite = s.id
   AND p.test IN (SELECT value FROM json_each(:names))
 WHERE s.project IS NOT NULL
   AND s.name = coalesce(:suite, s.name) AND p.target = coalesce(:target, p.target)
 ORDER BY p.test, s.project, s.name, p.target
"""

# CROSS JOIN makes SQLite begin with the newest run, and stop at the limit.
_RUNS = """
SELECT r.id AS run, s.id AS suite, s.config_hash
  FROM runs r
  CROSS JOIN suites s ON s.run = r.id AND s.name = :suite AND s.project = :project
  CROSS JOIN planned_tests p ON p.suite = s.id AND p.test = :test AND p.target = :target
 WHERE p.selected AND (:since IS NULL OR r.started_at >= :since)
 ORDER BY r.started_at DESC, r.id
 LIMIT :limit
"""

# Imported results of EvalView have the kind `score`.
_FIGURES = """
WITH repeats AS (
  SELECT * FROM executions WHERE suite = ? AND test = ? AND target = ?),
scored AS (
  SELECT a.kind, a.label, a.score
    FROM repeats e
    JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
   WHERE a.score IS NOT NULL)
SELECT (SELECT avg(mean) FROM (
          SELECT avg(score) AS mean FROM scored WHERE kind = 'judge' GROUP BY label)),
       (SELECT avg(score) FROM scored WHERE kind IN ('weighted_score', 'score')),
       (SELECT json_group_array(DISTINCT coalesce(c.reported_model, c.model))
          FROM repeats e JOIN provider_calls c ON c.execution = e.source
         WHERE c.purpose = 'test' AND c.status = 'responded'),
       EXISTS (SELECT 1 FROM repeats e JOIN provider_calls c ON c.execution = e.id
                WHERE c.purpose = 'test' AND c.recorded_in IS NOT NULL)
"""


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """The results of a test in one run.

    `judge` is the mean over its criteria of their mean score, `weighted` the mean of its weighted
    scores. `is_cached` is whether any answer is from the history.
    """

    run: Run
    config_hash: str | None
    test: TestView
    judge: float | None
    weighted: float | None
    cost_usd: float | None
    models: tuple[str, ...]
    is_cached: bool
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trend:
    """A test over its runs, the newest first; `more` is whether there are older ones."""

    test: QualifiedName
    points: tuple[TrendPoint, ...]
    more: bool

    @property
    def counted(self) -> tuple[TrendPoint, ...]:
        """The runs with conversations of their own.

        Those of rescored, replayed and cached runs were held in another run. Repeats that `kindlm
        settle` added are left out, since it picks tests by their results.
        """
        own = (each for each in self.points if each.run.mode not in NOT_COUNTED)
        return tuple(point for point in own if not point.is_cached)

    @property
    def flakiness(self) -> Flakiness:
        """The flakiness of the test in and between live runs, by first attempts."""
        live = [point.test for point in reversed(self.counted) if point.run.mode == "live"]
        return flakiness(
            [Counts(test.counts.passed - test.passed_later, test.counts.tested) for test in live]
        )

    @property
    def passed_later(self) -> Counts:
        """How many executions passed only when they were run again, of all."""
        tests = (point.test for point in self.counted)
        return pooled(Counts(test.passed_later, test.counts.tested) for test in tests)


def find_tests(
    db: sqlite3.Connection, name: str, *, suite: str | None = None, target: str | None = None
) -> list[QualifiedName]:
    """Return the tests with a name; without one, those whose name contains it, in any case."""
    names = [row[0] for row in db.execute("SELECT DISTINCT test FROM planned_tests")]
    if name in names:
        names = [name]
    else:
        # SQLite ignores the case of ASCII letters only.
        names = [each for each in names if name.casefold() in each.casefold()]
    wanted = {"names": json.dumps(names), "suite": suite, "target": target}
    return [QualifiedName(*row) for row in db.execute(_NAMED, wanted)]


def read_trend(
    db: sqlite3.Connection, test: QualifiedName, *, limit: int, since: str | None = None
) -> Trend:
    """Return the results of a test in the newest runs that selected it, `since` a time in UTC."""
    named = {"project": test.project, "suite": test.suite, "test": test.name}
    # One more, for the changes of the oldest one.
    wanted = {**named, "target": test.target, "since": since, "limit": limit + 1}
    rows = db.execute(_RUNS, wanted).fetchall()
    found = {run.id: run for run in runs(db, RunFilter(ids=[row["run"] for row in rows]))}
    points = []
    for row in rows:
        key = row["suite"], test.name, test.target
        judge, weighted, models, is_cached = db.execute(_FIGURES, key).fetchone()
        paid = paid_for_test(db, *key)
        point = TrendPoint(
            found[row["run"]],
            row["config_hash"],
            read_test(db, *key),
            judge=judge,
            weighted=weighted,
            cost_usd=None if paid.unknown else paid.total_usd,
            models=tuple(sorted(json.loads(models))),
            is_cached=bool(is_cached),
        )
        points.append(point)
    changed = [replace(new, changes=tuple(_changes(old, new))) for new, old in pairwise(points)]
    return Trend(test, tuple([*changed, *points[-1:]][:limit]), more=len(points) > limit)


def _changes(before: TrendPoint, after: TrendPoint) -> Iterator[str]:
    if before.config_hash != after.config_hash:
        yield "config"
    if before.models and after.models and before.models != after.models:
        yield f"model {', '.join(before.models)} → {', '.join(after.models)}"
    old, new = before.run, after.run
    if old.git_commit != new.git_commit:
        yield f"git {(old.git_commit or 'none')[:_SHORT]} → {(new.git_commit or 'none')[:_SHORT]}"
    elif new.git_dirty and not old.git_dirty:
        yield "uncommitted changes"
    if old.kindlm_version != new.kindlm_version:
        yield f"kindlm {old.kindlm_version} → {new.kindlm_version}"


_LOOKED_BACK = 100
"""The most runs of a suite that are searched for failing tests."""

_SUITES = """
SELECT s.id
  FROM suites s JOIN runs r ON r.id = s.run
 WHERE s.name = ? AND s.project = ? AND r.mode = 'live' AND s.error_code IS NULL
 ORDER BY r.started_at DESC, r.id
 LIMIT ?
"""

_TESTS = """
SELECT t.*, p.repeat FROM tests t JOIN planned_tests p USING (suite, test, target)
 WHERE t.suite = ?
"""


def failing_tests(
    db: sqlite3.Connection, project: str, suite: str, wanted: Collection[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Return the tests of `wanted`, by name and target, that did not pass when they last ran.

    In a stopped run, a test may have failed, but it has passed only if all its repeats ran;
    otherwise, earlier runs decide.
    """
    undecided = set(wanted)
    failing: set[tuple[str, str]] = set()
    for found in db.execute(_SUITES, (suite, project, _LOOKED_BACK)).fetchall():
        if not undecided:
            break
        for row in db.execute(_TESTS, tuple(found)):
            test, key = test_of(row), (row["test"], row["target"])
            has_failed = test.status in (Status.FAILED, Status.ERRORED)
            if key in undecided and (has_failed or test.counts.tested >= row["repeat"]):
                undecided.discard(key)
                if has_failed:
                    failing.add(key)
    return failing
