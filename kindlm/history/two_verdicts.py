"""Tests that are judged by the rules of another program, with what ours would have said."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from kindlm.history.rows import TestView
from kindlm.history.run_view import RunView

__all__ = ["TwoVerdicts", "differing_verdicts", "verdicts_of"]

# Suites first: those that are not of EvalView have no such verdict, and are not looked through.
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


class TwoVerdicts(NamedTuple):
    """How many of `n` executions of a test pass by the rules of EvalView, and by those of kindlm.

    In `differ` of them the two disagree.
    """

    test: str
    target: str
    n: int
    evalview: int
    kindlm: int
    differ: int


def verdicts_of(db: sqlite3.Connection, test: TestView) -> TwoVerdicts | None:
    """Return both verdicts on a test, None unless it was judged by the rules of EvalView."""
    row = db.execute(_OF_TEST, (test.suite_id, test.name, test.target)).fetchone()
    return TwoVerdicts(*row) if row["n"] else None


def differing_verdicts(view: RunView) -> Iterator[TwoVerdicts]:
    """Yield the tests of a run on which the two verdicts differ, in some execution at least."""
    for row in view.over_suites(_DIFFERING):
        yield TwoVerdicts(*row)
