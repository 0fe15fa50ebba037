"""Finds recorded runs, with their state, their results, and their streams."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import field, fields
from typing import Any

from kindlm.dataclass import dataclass
from kindlm.history.queries import STATUS_COUNTS, Paid, among, paid_for_runs, value_of
from kindlm.history.verdict import StatusCounts
from kindlm.projections import RUN_LABEL
from kindlm_store import is_held

STATUSES = ("passed", "failed", "interrupted", "aborted", "not ended")
"""The values of `RunFilter.status`: the reported verdict, or the state of the run."""

_MOST_CHOICES = 200


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded run, or a group of shards as one.

    `ended` is finished, interrupted or aborted, and None for a run that is running or was killed. A
    group is finished or incomplete. `passed` is the verdict that was reported when the run ended.
    Runs that are not live were derived from `source_run`. `head` is the last hash of a finished
    run.
    """

    id: str
    label: str | None
    project: str
    mode: str
    planned: int
    started_at: str
    finished_at: str | None
    ended: str | None
    is_running: bool
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

    @property
    def state(self) -> str:
        """How it ended; running or killed if it did not."""
        return self.ended or ("running" if self.is_running else "killed")

    @property
    def status(self) -> str:
        """The reported verdict, passed or failed; without one, the state."""
        if self.passed is not None:
            return "passed" if self.passed else "failed"
        return self.state

    @property
    def index(self) -> int:
        """The number of its shard, from 1; 0 for a run that is not a shard."""
        return int((self.shard or "0").partition("/")[0])


def _where(condition: str) -> Any:
    """Return a field of `RunFilter` with its condition in SQL, which uses the value."""
    return field(default=None, metadata={"where": condition})


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Conditions for runs; None and False are no condition.

    `suite` is the name of a suite, `tested` of a suite that was loaded. `label` is a part of the
    label, in any case, `labelled` the whole label. `status` is one of `STATUSES`; times are UTC,
    ISO 8601. Words such as `latest` count `completed` runs.
    """

    ids: Sequence[str] | None = _where("r.id IN (SELECT value FROM json_each(:ids))")
    suite: str | None = _where("""
        EXISTS (SELECT 1 FROM suites s WHERE s.run = r.id AND s.name = :suite)""")
    tested: str | None = _where("""
        EXISTS (SELECT 1 FROM suites s
                 WHERE s.run = r.id AND s.name = :tested AND s.error_code IS NULL)""")
    label: str | None = _where(f"instr(lower({RUN_LABEL}), lower(:label))")
    labelled: str | None = _where(f"{RUN_LABEL} = :labelled")
    branch: str | None = _where("r.git_branch = :branch")
    status: str | None = _where("""
        CASE WHEN r.ended = 'finished' THEN iif(r.passed, 'passed', 'failed')
             ELSE coalesce(r.ended, 'not ended') END = :status""")
    since: str | None = _where("r.started_at >= :since")
    until: str | None = _where("r.started_at <= :until")
    group: str | None = _where("r.group_id = :group")
    completed: bool = _where("r.ended = 'finished' AND r.mode = 'live'")
    # The id of a run: a loaded suite is also one of it. A suite that was not loaded has no project.
    tested_like: str | None = _where("""
        EXISTS (SELECT 1 FROM suites mine
                  JOIN suites theirs ON theirs.run = :tested_like AND theirs.name = mine.name
                       AND coalesce(theirs.project, mine.project) = mine.project
                 WHERE mine.run = r.id AND mine.error_code IS NULL)""")
    limit: int | None = None
    offset: int = 0


REASON = """
coalesce((SELECT body FROM shown_texts
           WHERE ref = iif(json_valid(r.reason), r.reason ->> '$."$ref"', NULL)), r.reason)
"""
"""SQL: why the run `r` was stopped. Events of earlier versions have the text itself."""

_RUNS = f"""
SELECT {RUN_LABEL} AS label,
       (SELECT 'sha256:' || lower(substr(hex(head), 3))
          FROM streams WHERE name = 'run/' || r.id AND sealed) AS head,
       {REASON} AS reason,
       (SELECT json_group_array(name)
          FROM (SELECT name FROM suites WHERE run = r.id ORDER BY ordinal)) AS suites, r.*
  FROM runs r
  LEFT JOIN run_labels l ON l.run = r.id
"""  # noqa: S608 (constants of this package)


_OPTIONS = """
SELECT substr(stream, 5), data ->> '$.options' FROM event_log
 WHERE stream IN $ids AND type = 'run.started'
"""


def runs(db: sqlite3.Connection, wanted: RunFilter) -> Iterator[Run]:
    """Yield the runs that meet all conditions, the newest first."""
    values = {each.name: getattr(wanted, each.name) for each in fields(wanted)}
    values["ids"] = None if wanted.ids is None else json.dumps(list(wanted.ids))
    values["limit"] = -1 if wanted.limit is None else wanted.limit
    # With only these conditions, the query can use indexes.
    conditions = [
        each.metadata["where"]
        for each in fields(wanted)
        if each.metadata and values[each.name] not in (None, False)
    ]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = db.execute(
        f"{_RUNS} {where} ORDER BY r.started_at DESC, r.id LIMIT :limit OFFSET :offset", values
    )
    for row in rows:
        is_running = row["ended"] is None and held_lock(db, row["id"]) is not None
        yield value_of(Run, row, is_running=is_running)


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The results of a run; `gates_tacit` counts passed gates that no suite sets."""

    executions: StatusCounts
    gates_passed: int
    gates: int
    gates_tacit: int
    paid: Paid


_FIGURES = f"""
SELECT w.value, {STATUS_COUNTS},
       (SELECT count(*) FROM gates g WHERE g.run = w.value AND g.passed),
       (SELECT count(*) FROM gates g WHERE g.run = w.value),
       (SELECT count(*) FROM gates g WHERE g.run = w.value AND g.passed AND g.written IS NOT 1)
  FROM json_each(?) w
  LEFT JOIN executions e ON e.run = w.value
 GROUP BY w.value
"""  # noqa: S608 (constants of this package)


def read_figures(db: sqlite3.Connection, listed: Sequence[Run]) -> dict[str, RunFigures]:
    """Return the figures of runs, by id, with two queries for any number of runs."""
    ids = [run.id for run in listed]
    paid = paid_for_runs(db, ids)
    return {
        run: RunFigures(StatusCounts(*counts), passed, gates, tacit, paid.get(run, Paid()))
        for run, *counts, passed, gates, tacit in db.execute(_FIGURES, (json.dumps(ids),))
    }


def held_lock(db: sqlite3.Connection, run: str) -> str | None:
    """Return the name of the lock that a process holds on a run; None if it is not running.

    A worker may run a shard on another machine, so the shard is running while its group is.
    """
    file = db.execute("PRAGMA database_list").fetchone()[2]
    group = db.execute("SELECT group_id FROM runs WHERE id = ?", (run,)).fetchone()
    names = [f"run/{run}", *(f"group/{name}" for (name,) in [group or (None,)] if name)]
    return next((name for name in names if is_held(file, name)), None)


def sources_of(db: sqlite3.Connection, run: str) -> dict[str, str | None]:
    """Return a run and its sources, the nearest first, with their modes; None for a missing run."""
    found: dict[str, str | None] = {}
    source: str | None = run
    # In a changed history, runs may be derived from each other.
    while source is not None and source not in found:
        query = "SELECT mode, source_run FROM runs WHERE id = ?"
        row = db.execute(query, (source,)).fetchone()
        found[source], source = row or (None, None)
    return found


_ADDED = "SELECT id FROM runs WHERE mode = 'settled' AND source_run IN $ids ORDER BY started_at, id"

# Journals hold reviews, labels and baselines. An unreadable event may concern any run.
_JOURNALS = """
WITH
  entries AS (
    SELECT s.name AS stream, t.name AS type, iif(json_valid(e.data), e.data, NULL) AS data
      FROM streams s
      JOIN events e ON e.stream = s.id
      LEFT JOIN event_types t ON t.id = e.type
     WHERE s.name GLOB 'journal/*'),
  about AS (
    SELECT * FROM entries
     WHERE data IS NULL OR data ->> 'run' IN $ids
        OR (type = 'baseline.set'
            AND EXISTS (SELECT 1 FROM json_each(data, '$.runs') WHERE value IN $ids)))
SELECT stream FROM about
 UNION
SELECT e.stream
  FROM entries e
  JOIN about s ON s.type = 'baseline.set' AND s.data ->> 'project' = e.data ->> 'project'
   AND s.data ->> 'suite' = e.data ->> 'suite' AND s.data ->> 'label' IS e.data ->> 'label'
 WHERE e.type = 'baseline.removed'
"""

# A journal is exported whole, so the other runs that it seals are needed, too.
_SEALED = """
SELECT json_extract(data, '$.run') FROM event_log WHERE stream = ? AND type = 'run.sealed'
"""


def journals_about(db: sqlite3.Connection, runs: Sequence[str]) -> list[str]:
    """Return the journals with entries about runs, or that removed them as baselines."""
    return [stream for (stream,) in db.execute(*among(_JOURNALS, runs))]


def streams_of(db: sqlite3.Connection, run: str) -> tuple[list[str], list[str], list[str]]:
    """Return the streams that are exported, pushed and pulled with a run, as three lists.

    The first list has the ids of runs: the sources, the oldest first, then the runs with repeats
    that `kindlm settle` added to any of them, then the run itself. The second has the names of all
    streams, including journals about these runs. The third has the ids of missing sources.
    """
    sources = sources_of(db, run)
    missing = [each for each, mode in sources.items() if mode is None and each != run]
    own = [each for each in reversed(sources) if each not in missing]
    added = (each for (each,) in db.execute(*among(_ADDED, own)))
    own[-1:-1] = [each for each in added if each not in own]
    wanted = list(own)
    journals = list[str]()
    for each in wanted:
        for journal in journals_about(db, [each]):
            if journal not in journals:
                journals.append(journal)
                sealed = (run for (run,) in db.execute(_SEALED, (journal,)))
                wanted += [other for other in sealed if other not in wanted]
    return own, [*(f"run/{each}" for each in wanted), *journals], missing


def options_of(db: sqlite3.Connection, *runs: str) -> dict[str, dict[str, Any]]:
    """Return the recorded options of each of these runs, by id."""
    streams = [f"run/{run}" for run in runs]
    rows = db.execute(*among(_OPTIONS, streams))
    return {run: json.loads(options or "{}") for run, options in rows}


def runner_of(db: sqlite3.Connection, run: str) -> str | None:
    """Return the program that chose the tests of a run, such as pytest; None for kindlm."""
    return options_of(db, run).get(run, {}).get("runner")


def choices(db: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the names of recorded suites and git branches, for a page's filters."""
    found = dict[str, list[str]]()
    for name, column in (("suite", "name FROM suites"), ("branch", "git_branch FROM runs")):
        query = f"SELECT DISTINCT {column} ORDER BY 1 LIMIT {_MOST_CHOICES}"
        found[name] = [value for (value,) in db.execute(query) if value is not None]
    return found
