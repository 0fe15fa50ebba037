"""The runs of a history a page at a time, narrowed down, and what they can be narrowed down by.

Of a long history only the runs of the page are counted: the first page takes no longer the more
there are.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from kindlm.history.costs import Paid, paid_for_runs
from kindlm.history.runs import state_of
from kindlm.projections.naming import RUN_LABEL

__all__ = ["Choices", "Filters", "IndexedRun", "RunPage", "read_choices", "read_page"]

_IDS = f"""
SELECT r.id
  FROM runs r
  LEFT JOIN run_labels l ON l.run = r.id
 WHERE (:suite IS NULL OR r.id IN (SELECT run FROM suites WHERE name = :suite))
   AND (:branch IS NULL OR r.git_branch = :branch)
   AND (:label IS NULL OR instr(lower({RUN_LABEL}), lower(:label)))
   AND (:status IS NULL
        OR CASE WHEN r.ended = 'finished' THEN iif(r.passed, 'passed', 'failed')
                ELSE coalesce(r.ended, 'not ended') END = :status)
 ORDER BY r.started_at DESC, r.id
 LIMIT :limit OFFSET :offset
"""  # noqa: S608 (constants of this package)

_RUNS = f"""
SELECT r.id, {RUN_LABEL} AS label, r.project, r.mode,
       r.started_at, r.ended, r.passed, r.planned, r.duration_ms, r.git_branch, r.git_commit,
       r.git_dirty, r.source_run, r.group_id, r.shard,
       (SELECT json_group_array(name)
          FROM (SELECT name FROM suites WHERE run = r.id ORDER BY ordinal)) AS suites,
       e.ended_executions, e.passed_executions, e.failed_executions, e.errored_executions
  FROM json_each(:ids) wanted
  JOIN runs r ON r.id = wanted.value
  LEFT JOIN run_labels l ON l.run = r.id
  LEFT JOIN (
    SELECT run, count(status) AS ended_executions,
           sum(status = 'passed') AS passed_executions,
           sum(status = 'failed') AS failed_executions,
           sum(status = 'errored') AS errored_executions
      FROM executions
     WHERE run IN (SELECT value FROM json_each(:ids))
     GROUP BY run
  ) e ON e.run = r.id
 ORDER BY wanted.key
"""  # noqa: S608 (constants of this package)

_SUITES = "SELECT DISTINCT name FROM suites ORDER BY name LIMIT :limit"
_BRANCHES = """
SELECT DISTINCT git_branch FROM runs WHERE git_branch IS NOT NULL ORDER BY 1 LIMIT :limit
"""

_MOST_CHOICES = 200

STATUSES = ("passed", "failed", "interrupted", "aborted", "not ended")
"""What runs can be narrowed down to: the verdict as it was told, or how the run stands."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What runs are narrowed down to; a label is found by a part of it."""

    suite: str | None = None
    label: str | None = None
    branch: str | None = None
    status: str | None = None


@dataclass(frozen=True, slots=True)
class IndexedRun:
    """A run in the index.

    `status` is the verdict as it was told: passed or failed; of a run that did not finish how it
    stands: interrupted, aborted, running or killed.
    """

    id: str
    label: str | None
    project: str
    mode: str
    started_at: str
    status: str
    planned: int
    duration_ms: float | None
    git_branch: str | None
    git_commit: str | None
    git_dirty: bool
    source_run: str | None
    group_id: str | None
    shard: str | None
    suites: tuple[str, ...]
    ended: int
    passed: int
    failed: int
    errored: int
    paid: Paid

    @property
    def pass_rate(self) -> float | None:
        """Passed executions of those that were tested; None if none was."""
        tested = self.passed + self.failed + self.errored
        return self.passed / tested if tested else None


@dataclass(frozen=True, slots=True)
class RunPage:
    """Some of the runs, the newest first; `more` tells whether there are older ones."""

    runs: tuple[IndexedRun, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class Choices:
    """The suites and branches that runs can be narrowed down to."""

    suites: tuple[str, ...]
    branches: tuple[str, ...]
    statuses: tuple[str, ...] = STATUSES


def read_page(db: sqlite3.Connection, filters: Filters, *, limit: int, offset: int = 0) -> RunPage:
    """Return `limit` runs at most, after the newest `offset` ones of those that are wanted."""
    wanted = {
        "suite": filters.suite,
        "label": filters.label,
        "branch": filters.branch,
        "status": filters.status,
        "limit": limit + 1,
        "offset": offset,
    }
    ids = [row[0] for row in db.execute(_IDS, wanted)]
    rows = db.execute(_RUNS, {"ids": json.dumps(ids[:limit])})
    paid = paid_for_runs(db, ids[:limit])
    runs = tuple(_run(db, row, paid[row["id"]]) for row in rows)
    return RunPage(runs, more=len(ids) > limit)


def read_choices(db: sqlite3.Connection) -> Choices:
    """Return what the runs of a history can be narrowed down to."""
    limit = {"limit": _MOST_CHOICES}
    return Choices(
        tuple(row[0] for row in db.execute(_SUITES, limit)),
        tuple(row[0] for row in db.execute(_BRANCHES, limit)),
    )


def _run(db: sqlite3.Connection, row: sqlite3.Row, paid: Paid) -> IndexedRun:
    status = state_of(db, row["id"], row["ended"])
    if status == "finished":
        status = "passed" if row["passed"] else "failed"
    return IndexedRun(
        id=row["id"],
        label=row["label"],
        project=row["project"],
        mode=row["mode"],
        started_at=row["started_at"],
        status=status,
        planned=row["planned"],
        duration_ms=row["duration_ms"],
        git_branch=row["git_branch"],
        git_commit=row["git_commit"],
        git_dirty=bool(row["git_dirty"]),
        source_run=row["source_run"],
        group_id=row["group_id"],
        shard=row["shard"],
        suites=tuple(json.loads(row["suites"])),
        ended=row["ended_executions"] or 0,
        passed=row["passed_executions"] or 0,
        failed=row["failed_executions"] or 0,
        errored=row["errored_executions"] or 0,
        paid=paid,
    )
