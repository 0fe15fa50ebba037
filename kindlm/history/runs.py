"""The recorded runs: which there are, how they stand, and what they came to.

Lists, names, groups, choices and comparisons all find their runs by `runs`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kindlm.history.costs import Paid, paid_for_runs
from kindlm.history.queries import among, value_of
from kindlm.history.verdict import StatusCounts
from kindlm.projections.views import RUN_LABEL
from kindlm_store import is_held

__all__ = [
    "STATUSES",
    "Run",
    "RunFigures",
    "RunFilter",
    "choices",
    "options_of",
    "read_figures",
    "runner_of",
    "runs",
    "state_of",
    "status_of",
]

STATUSES = ("passed", "failed", "interrupted", "aborted", "not ended")
"""The values of `RunFilter.status`: the verdict as it was reported, or how the run stands."""

_MOST_CHOICES = 200

_CHOICES = {
    "suite": "SELECT DISTINCT name FROM suites",
    "branch": "SELECT DISTINCT git_branch FROM runs WHERE git_branch IS NOT NULL",
}


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded run, or a group of shards as one.

    `ended` is finished, interrupted, aborted, or None: running or killed. A group is finished or
    incomplete. `passed` is the verdict as it was reported when the run ended, None without one.
    A run that is not live was derived from `source_run`. `head` is the last hash of a run that
    finished.
    """

    id: str
    label: str | None
    project: str
    mode: str
    planned: int
    started_at: str
    finished_at: str | None
    ended: str | None
    reason: str | None
    passed: bool | None
    duration_ms: float | None
    git_commit: str | None
    git_branch: str | None
    git_dirty: bool | None
    ci: str | None
    kindlm_version: str
    source_run: str | None
    group_id: str | None
    shard: str | None
    head: str | None
    suites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs are wanted; a condition that is None, or false, lets every run through.

    Attributes:
        ids: Only these runs.
        suite: Runs that have a suite of this name.
        label: Runs whose label contains this text, in either case.
        labelled: Runs with exactly this label.
        branch: Runs of this git branch.
        status: One of `STATUSES`.
        since: Runs that began then or later, UTC, ISO 8601.
        until: Runs that began then or earlier.
        group: Shards of a group of this name, in any project.
        like: Runs that have the name of a suite in common with this run.
        completed: Live runs that finished: those that words such as `latest` count.
        tested_like: Runs that loaded a suite that this run has, of the same project.
        limit: At most so many.
        offset: Runs to leave out before that.
    """

    ids: Sequence[str] | None = None
    suite: str | None = None
    label: str | None = None
    labelled: str | None = None
    branch: str | None = None
    status: str | None = None
    since: str | None = None
    until: str | None = None
    group: str | None = None
    like: str | None = None
    completed: bool = False
    tested_like: str | None = None
    limit: int | None = None
    offset: int = 0


# Only the conditions that are asked for stand in the query, so that it can use the indexes.
_CONDITIONS = {
    "ids": "r.id IN (SELECT value FROM json_each(:ids))",
    "suite": "EXISTS (SELECT 1 FROM suites s WHERE s.run = r.id AND s.name = :suite)",
    "label": f"instr(lower({RUN_LABEL}), lower(:label))",
    "labelled": f"{RUN_LABEL} = :labelled",
    "branch": "r.git_branch = :branch",
    "status": """
        CASE WHEN r.ended = 'finished' THEN iif(r.passed, 'passed', 'failed')
             ELSE coalesce(r.ended, 'not ended') END = :status""",
    "since": "r.started_at >= :since",
    "until": "r.started_at <= :until",
    "group": "r.group_id = :group",
    "like": """
        EXISTS (SELECT 1 FROM suites mine
                  JOIN suites theirs ON theirs.run = :like AND theirs.name = mine.name
                 WHERE mine.run = r.id)""",
    "completed": "r.ended = 'finished' AND r.mode = 'live'",
    # A suite that could not be loaded has no project.
    "tested_like": """
        EXISTS (SELECT 1 FROM suites mine
                  JOIN suites theirs ON theirs.run = :tested_like AND theirs.name = mine.name
                       AND coalesce(theirs.project, mine.project) = mine.project
                 WHERE mine.run = r.id AND mine.error_code IS NULL)""",
}

_RUNS = f"""
SELECT {RUN_LABEL} AS label, h.head,
       (SELECT json_group_array(name)
          FROM (SELECT name FROM suites WHERE run = r.id ORDER BY ordinal)) AS suites, r.*
  FROM runs r
  LEFT JOIN run_labels l ON l.run = r.id
  LEFT JOIN seals h ON h.run = r.id
"""  # noqa: S608 (constants of this package)


_OPTIONS = """
SELECT substr(stream, 5), data ->> '$.options' FROM event_log
 WHERE stream IN $ids AND type = 'run.started'
"""


def runs(db: sqlite3.Connection, wanted: RunFilter) -> Iterator[Run]:
    """Yield the runs that are wanted, the newest first."""
    values = {name: getattr(wanted, name) for name in _CONDITIONS}
    values["ids"] = None if wanted.ids is None else json.dumps(list(wanted.ids))
    conditions = [_CONDITIONS[name] for name, value in values.items() if value not in (None, False)]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    limit = -1 if wanted.limit is None else wanted.limit
    rows = db.execute(
        f"{_RUNS} {where} ORDER BY r.started_at DESC, r.id LIMIT :limit OFFSET :offset",
        {**values, "limit": limit, "offset": wanted.offset},
    )
    for row in rows:
        passed, dirty = (None if row[f] is None else bool(row[f]) for f in ("passed", "git_dirty"))
        suites = tuple(json.loads(row["suites"]))
        yield value_of(Run, row, passed=passed, git_dirty=dirty, suites=suites)


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What a run came to: its executions, the gates that were judged when it ended, its cost."""

    executions: StatusCounts
    gates_passed: int
    gates: int
    paid: Paid


_FIGURES = """
SELECT r.id, e.passed, e.failed, e.errored, e.skipped, e.pending,
       (SELECT count(*) FROM gates g WHERE g.run = r.id AND g.passed) AS gates_passed,
       (SELECT count(*) FROM gates g WHERE g.run = r.id) AS gates
  FROM json_each(:ids) wanted
  JOIN runs r ON r.id = wanted.value
  LEFT JOIN (
    SELECT run, sum(status IS 'passed') AS passed, sum(status IS 'failed') AS failed,
           sum(status IS 'errored') AS errored, sum(status IS 'skipped') AS skipped,
           sum(status IS NULL) AS pending
      FROM executions
     WHERE run IN (SELECT value FROM json_each(:ids))
     GROUP BY run
  ) e ON e.run = r.id
"""


def read_figures(db: sqlite3.Connection, listed: Sequence[Run]) -> dict[str, RunFigures]:
    """Return what runs came to, by their ids, with as many queries however many runs there are."""
    ids = [run.id for run in listed]
    paid = paid_for_runs(db, ids)
    return {
        run: RunFigures(
            StatusCounts(*(count or 0 for count in counts)), gates_passed, gates, paid[run]
        )
        for run, *counts, gates_passed, gates in db.execute(_FIGURES, {"ids": json.dumps(ids)})
    }


def state_of(db: sqlite3.Connection, run: str, ended: str | None) -> str:
    """Return how a run stands: finished, interrupted, aborted, running or killed.

    `ended` is what is recorded of it: nothing while it runs, and after its process was killed.
    """
    if ended is not None:
        return ended
    file = db.execute("PRAGMA database_list").fetchone()[2]
    return "running" if is_held(file, f"run/{run}") else "killed"


def status_of(db: sqlite3.Connection, run: Run) -> str:
    """Return the verdict of a run as it was reported, passed or failed; else how it stands."""
    if run.passed is not None:
        return "passed" if run.passed else "failed"
    return state_of(db, run.id, run.ended)


def options_of(db: sqlite3.Connection, *runs: str) -> dict[str, dict[str, Any]]:
    """Return what each of these runs was asked to do, by its id, as its first event says."""
    streams = [f"run/{run}" for run in runs]
    rows = db.execute(*among(_OPTIONS, streams))
    return {run: json.loads(options or "{}") for run, options in rows}


def runner_of(db: sqlite3.Connection, run: str) -> str | None:
    """Return what chose the tests of a run and started them, such as pytest; None for kindlm."""
    return options_of(db, run).get(run, {}).get("runner")


def choices(db: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the names of recorded suites and git branches, for a reader to choose from."""
    return {
        name: [row[0] for row in db.execute(f"{query} ORDER BY 1 LIMIT {_MOST_CHOICES}")]
        for name, query in _CHOICES.items()
    }
