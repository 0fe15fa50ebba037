"""What was paid for a run, or for a test of it: every call, retries and judges included.

One rule for every list, page and report: a cost is all that was paid, and where it is told apart,
agents (what was tested) and judges (what evaluated it, embeddings included).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

_PAID = """
SELECT r.id, r.mode,
       sum(CASE WHEN c.purpose = 'test' THEN c.cost_usd END) AS agents_usd,
       sum(CASE WHEN c.purpose <> 'test' THEN c.cost_usd END) AS judges_usd,
       coalesce(sum(c.status = 'responded' AND c.cost_usd IS NULL), 0) AS unknown
  FROM runs r
  LEFT JOIN executions e ON $executions
  LEFT JOIN provider_calls c ON c.execution = e.id
 WHERE r.id IN (SELECT value FROM json_each(:runs))
 GROUP BY r.id
"""


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
    return _paid(db, "e.run = r.id", runs)


def paid_for_test(db: sqlite3.Connection, suite: str, test: str, target: str) -> Paid:
    """Return what all repeats of a test of one suite, by the suite's id, cost together."""
    run = suite.rpartition("/")[0]
    of_test = "e.suite = :suite AND e.test = :test AND e.target = :target"
    return _paid(db, of_test, [run], suite=suite, test=test, target=target)[run]


def paid_for_execution(db: sqlite3.Connection, execution: str) -> Paid:
    """Return what all attempts of an execution, by its id, cost in its own run."""
    run = execution.rpartition("-")[0]
    return _paid(db, "e.id = :id", [run], id=execution)[run]


def _paid(
    db: sqlite3.Connection, executions: str, runs: Sequence[str], **named: str
) -> dict[str, Paid]:
    """Return what was paid for some executions of some runs, run by run."""
    rows = db.execute(
        _PAID.replace("$executions", executions), {"runs": json.dumps(list(runs)), **named}
    )
    return {
        # Of a rescored run it is known that no agent was called.
        run: Paid(0.0 if agents is None and mode == "rescored" else agents, judges, unknown)
        for run, mode, agents, judges, unknown in rows
    }
