"""What was paid for a run, or for a test of it: every call, retries and judges included.

One rule for every list, page and report: a cost is all that was paid, and where it is told apart,
agents (what was tested) and judges (what evaluated it, embeddings included).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Paid", "paid_for_execution", "paid_for_runs", "paid_for_test"]

_SUMS = """
sum(CASE WHEN c.purpose = 'test' THEN c.cost_usd END) AS agents_usd,
sum(CASE WHEN c.purpose <> 'test' THEN c.cost_usd END) AS judges_usd,
coalesce(sum(c.status = 'responded' AND c.cost_usd IS NULL), 0) AS unknown
"""


def _paid_by(executions: str, where: str) -> str:
    """Return a query for what was paid for some executions of some runs, run by run."""
    return f"""
SELECT r.id, r.mode, {_SUMS}
  FROM runs r
  LEFT JOIN executions e ON {executions}
  LEFT JOIN provider_calls c ON c.execution = e.id
 WHERE {where}
 GROUP BY r.id
"""  # noqa: S608 (constants of this module)


_RUNS = _paid_by("e.run = r.id", "r.id IN (SELECT value FROM json_each(?))")

_TEST = _paid_by(
    "e.suite = :suite AND e.test = :test AND e.target = :target",
    "r.id = (SELECT run FROM suites WHERE id = :suite)",
)

_EXECUTION = _paid_by("e.id = :id", "r.id = (SELECT run FROM executions WHERE id = :id)")


@dataclass(frozen=True, slots=True)
class Paid:
    """US dollars; None where nobody was called, or no cost of a call is known.

    `unknown` counts the answered calls whose cost is not known.
    """

    agents_usd: float | None = None
    judges_usd: float | None = None
    unknown: int = 0

    @property
    def total_usd(self) -> float | None:
        """All that is known to have been paid."""
        known = [usd for usd in (self.agents_usd, self.judges_usd) if usd is not None]
        return sum(known) if known else None


def paid_for_runs(db: sqlite3.Connection, runs: Sequence[str]) -> dict[str, Paid]:
    """Return what each of these runs cost, by its id, in one statement."""
    return dict(map(_paid, db.execute(_RUNS, (json.dumps(list(runs)),))))


def paid_for_test(db: sqlite3.Connection, suite: str, test: str, target: str) -> Paid:
    """Return what all repeats of a test of one suite, by the suite's id, cost together."""
    wanted = {"suite": suite, "test": test, "target": target}
    return _paid(db.execute(_TEST, wanted).fetchone())[1]


def paid_for_execution(db: sqlite3.Connection, execution: str) -> Paid:
    """Return what all attempts of an execution, by its id, cost in its own run."""
    return _paid(db.execute(_EXECUTION, {"id": execution}).fetchone())[1]


def _paid(row: sqlite3.Row) -> tuple[str, Paid]:
    run, mode, agents_usd, judges_usd, unknown = row
    # Of a rescored run it is known that no agent was called.
    nobody_called = agents_usd is None and mode == "rescored"
    return run, Paid(0.0 if nobody_called else agents_usd, judges_usd, unknown)
