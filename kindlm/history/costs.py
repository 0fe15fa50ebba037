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

_RUNS = f"""
SELECT r.id, r.mode, {_SUMS}
  FROM json_each(?) wanted
  JOIN runs r ON r.id = wanted.value
  LEFT JOIN executions e ON e.run = r.id
  LEFT JOIN provider_calls c ON c.execution = e.id
 GROUP BY r.id
"""  # noqa: S608 (constants of this module)

_TEST = f"""
SELECT r.mode, {_SUMS}
  FROM suites s
  JOIN runs r ON r.id = s.run
  LEFT JOIN executions e ON e.suite = s.id AND e.test = :test AND e.target = :target
  LEFT JOIN provider_calls c ON c.execution = e.id
 WHERE s.id = :suite
"""  # noqa: S608 (constants of this module)


_EXECUTION = f"""
SELECT r.mode, {_SUMS}
  FROM executions e
  JOIN runs r ON r.id = e.run
  LEFT JOIN provider_calls c ON c.execution = e.id
 WHERE e.id = ?
"""  # noqa: S608 (constants of this module)


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
    return {row[0]: _paid(*row[1:]) for row in db.execute(_RUNS, (json.dumps(list(runs)),))}


def paid_for_test(db: sqlite3.Connection, suite: str, test: str, target: str) -> Paid:
    """Return what all repeats of a test of one suite, by the suite's id, cost together."""
    wanted = {"suite": suite, "test": test, "target": target}
    return _paid(*db.execute(_TEST, wanted).fetchone())


def paid_for_execution(db: sqlite3.Connection, execution: str) -> Paid:
    """Return what all attempts of an execution, by its id, cost in its own run."""
    return _paid(*db.execute(_EXECUTION, (execution,)).fetchone())


def _paid(mode: str, agents_usd: float | None, judges_usd: float | None, unknown: int) -> Paid:
    # Of a rescored run it is known that no agent was called.
    nobody_called = agents_usd is None and mode == "rescored"
    return Paid(0.0 if nobody_called else agents_usd, judges_usd, unknown)
