"""The numbers that gates judge, asked of the read models: one query for each family.

A suite may have been run in parts, by the shards of a run: all of them are counted together.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from kindlm.history.queries import among
from kindlm.history.verdict import StatusCounts, SuiteMetrics

__all__ = ["suite_metrics"]

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


def suite_metrics(db: sqlite3.Connection, *parts: str) -> SuiteMetrics:
    """Return what the gates of a suite look at; `parts` are its ids in the runs that ran it."""
    executions, latency = _counts(db, parts)
    schema, pii, keyword = _row(db, _FAILURES, parts)
    drift, drift_skipped = _row(db, _DRIFT, parts)
    cost, unknown_costs = _spend(db, parts)
    return SuiteMetrics(
        executions=executions,
        schema_failures=schema or 0,
        pii_failures=pii or 0,
        keyword_failures=keyword or 0,
        judge_average=_row(db, _JUDGE, parts)[0],
        drift_maximum=drift,
        cost_usd=cost,
        unknown_costs=unknown_costs,
        latency_average_ms=latency,
        narrowed=bool(_row(db, _NARROWED, parts)[0]),
        drift_skipped=drift_skipped or 0,
    )


def _spend(db: sqlite3.Connection, parts: Sequence[str]) -> tuple[float | None, int]:
    cost, unknown, judges_then, unknown_calls = _row(db, _SPEND, parts)
    then, unknown_then = _row(db, _SPENT_THEN, parts)
    known = [usd for usd in (cost, judges_then, then) if usd is not None]
    return sum(known) if known else None, unknown + unknown_calls + unknown_then


def _counts(db: sqlite3.Connection, parts: Sequence[str]) -> tuple[StatusCounts, float | None]:
    *counts, latency = _row(db, _COUNTS, parts)
    return StatusCounts(*(count or 0 for count in counts)), latency


def _row(db: sqlite3.Connection, query: str, parts: Sequence[str]) -> tuple[Any, ...]:
    return tuple(db.execute(*among(query, parts)).fetchone())
