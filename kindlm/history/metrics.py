"""The numbers that gates judge, asked of the read models: one query for each family."""

from __future__ import annotations

import sqlite3

from kindlm.history.verdict import StatusCounts, SuiteMetrics

__all__ = ["execution_counts", "suite_metrics"]

_COUNTS = """
SELECT sum(status = 'passed'), sum(status = 'failed'), sum(status = 'errored'),
       -- what a stopped run never came to is skipped, too
       sum(status = 'skipped' OR status IS NULL),
       avg(CASE WHEN status <> 'skipped' AND answers > 0 THEN latency_ms END)
  FROM executions WHERE suite = ?
"""

_FAILURES = """
SELECT sum(a.kind = 'schema'), sum(a.kind = 'pii'),
       sum(a.kind IN ('keywords_deny', 'keywords_allow'))
  FROM executions e
  JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
 WHERE e.suite = ? AND a.outcome = 'failed'
"""

_JUDGE = """
SELECT avg(mean) FROM (
  SELECT avg(a.score) AS mean
    FROM executions e
    JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
   WHERE e.suite = ? AND a.kind = 'judge' AND a.score IS NOT NULL
   GROUP BY e.test, e.target, a.label)
"""

_DRIFT = """
SELECT max(1 - a.score), sum(a.outcome = 'skipped')
  FROM executions e
  JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
 WHERE e.suite = ? AND a.kind = 'drift'
"""

# What was recorded in another run counts with what it cost there: gates judge what a run did.
_SPEND = """
SELECT sum(cost_usd), coalesce(sum(unknown_costs), 0),
       sum(CASE WHEN purpose <> 'test' THEN cost_then_usd END),
       coalesce(sum(CASE WHEN purpose <> 'test' THEN unknown_costs_then END), 0)
  FROM spend WHERE suite = ?
"""

_SPENT_THEN = """
SELECT sum(e.cost_then_usd),
       coalesce(sum(e.answers > 0 AND e.cost_then_usd IS NULL
                    AND r.mode IN ('rescored', 'replayed')), 0)
  FROM executions e JOIN runs r ON r.id = e.run
 WHERE e.suite = ?
"""

_NARROWED = "SELECT EXISTS (SELECT 1 FROM planned_tests WHERE suite = ? AND NOT selected)"


def execution_counts(db: sqlite3.Connection, suite: str) -> StatusCounts:
    """Return how the executions of a suite came out."""
    return _counts(db, suite)[0]


def suite_metrics(db: sqlite3.Connection, suite: str) -> SuiteMetrics:
    """Return what the gates of a suite look at."""
    executions, latency = _counts(db, suite)
    schema, pii, keyword = db.execute(_FAILURES, (suite,)).fetchone()
    drift, drift_skipped = db.execute(_DRIFT, (suite,)).fetchone()
    cost, unknown_costs = _spend(db, suite)
    return SuiteMetrics(
        executions=executions,
        schema_failures=schema or 0,
        pii_failures=pii or 0,
        keyword_failures=keyword or 0,
        judge_average=db.execute(_JUDGE, (suite,)).fetchone()[0],
        drift_maximum=drift,
        cost_usd=cost,
        unknown_costs=unknown_costs,
        latency_average_ms=latency,
        narrowed=bool(db.execute(_NARROWED, (suite,)).fetchone()[0]),
        drift_skipped=drift_skipped or 0,
    )


def _spend(db: sqlite3.Connection, suite: str) -> tuple[float | None, int]:
    cost, unknown, judges_then, unknown_judges = db.execute(_SPEND, (suite,)).fetchone()
    then, unknown_then = db.execute(_SPENT_THEN, (suite,)).fetchone()
    known = [usd for usd in (cost, judges_then, then) if usd is not None]
    return sum(known) if known else None, unknown + unknown_judges + unknown_then


def _counts(db: sqlite3.Connection, suite: str) -> tuple[StatusCounts, float | None]:
    *counts, latency = db.execute(_COUNTS, (suite,)).fetchone()
    return StatusCounts(*(count or 0 for count in counts)), latency
