"""Finding runs, by id, prefix or label, listing them, newest first, and how a run stands."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.costs import Paid, paid_for_runs
from kindlm_store import is_held

__all__ = ["RunRow", "find_run", "latest_finished", "list_runs", "runner_of", "state_of"]


_NAMED_RUNS = 3
"""So many are named to somebody who asks for one that is not there."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run in a list. `passed` is the verdict as told then, None for a run that has none.

    `cost_usd` is all that is known to have been paid for it. `gates` counts the gates that were
    judged then, `gates_passed` those of them that passed. One that is not live was derived from
    `source_run`.
    """

    id: str
    label: str | None
    suites: tuple[str, ...]
    started_at: str
    ended: str | None
    passed: bool | None
    passed_executions: int
    executions: int
    gates_passed: int
    gates: int
    cost_usd: float | None
    git_branch: str | None
    git_commit: str | None
    group_id: str | None
    shard: str | None
    mode: str
    source_run: str | None


_LIST = """
SELECT l.run AS id, l.label, l.started_at, l.ended, l.passed,
       (SELECT json_group_array(name)
          FROM (SELECT name FROM suites WHERE run = l.run ORDER BY ordinal)) AS suites,
       l.passed_executions,
       l.passed_executions + l.failed_executions + l.errored_executions AS executions,
       (SELECT count(*) FROM gates g WHERE g.run = l.run AND g.passed) AS gates_passed,
       (SELECT count(*) FROM gates g WHERE g.run = l.run) AS gates,
       l.git_branch, l.git_commit, r.group_id, r.shard, r.mode, r.source_run
  FROM run_list l
  JOIN runs r ON r.id = l.run
 WHERE (:suite IS NULL OR EXISTS (
          SELECT 1 FROM suites s WHERE s.run = l.run AND s.name = :suite))
   AND (:since IS NULL OR l.started_at >= :since)
 ORDER BY l.started_at DESC, l.run
 LIMIT :limit
"""


_LATEST_FINISHED = """
SELECT r.id FROM runs r
 WHERE r.ended = 'finished' AND r.mode = 'live'
   AND (:suite IS NULL OR EXISTS (
          SELECT 1 FROM suites s WHERE s.run = r.id AND s.name = :suite))
 ORDER BY r.started_at DESC, r.id
 LIMIT 1
"""

_RUNNER = """
SELECT json_extract(data, '$.options.runner') FROM event_log
 WHERE stream = 'run/' || ? AND type = 'run.started'
"""


def list_runs(
    db: sqlite3.Connection,
    *,
    limit: int = 20,
    suite: str | None = None,
    since: str | None = None,
) -> list[RunRow]:
    """Return the newest runs first; `since` is a UTC timestamp in ISO 8601."""
    rows = db.execute(_LIST, {"limit": limit, "suite": suite, "since": since}).fetchall()
    paid = paid_for_runs(db, [row["id"] for row in rows])
    return [_row(dict(row), paid[row["id"]]) for row in rows]


def find_run(db: sqlite3.Connection, wanted: str) -> Result[str]:
    """Return the id of the run that a user names: `latest`, an id or its beginning, or a label."""
    if wanted == "latest":
        found = db.execute("SELECT id FROM runs ORDER BY started_at DESC, id LIMIT 1").fetchone()
        return Ok(found[0]) if found else Err(_no_runs())
    exact = db.execute("SELECT id FROM runs WHERE id = ?", (wanted,)).fetchone()
    if exact:
        return Ok(exact[0])
    labelled = db.execute(
        "SELECT run FROM run_list WHERE label = ? ORDER BY started_at DESC LIMIT 1", (wanted,)
    ).fetchone()
    if labelled:
        return Ok(labelled[0])
    starting = [
        row[0]
        for row in db.execute(
            "SELECT id FROM runs"
            " WHERE :wanted <> '' AND substr(id, 1, length(:wanted)) = :wanted LIMIT 6",
            {"wanted": wanted},
        )
    ]
    if len(starting) == 1:
        return Ok(starting[0])
    return Err(_ambiguous(wanted, starting) if starting else _unknown(db, wanted))


def latest_finished(db: sqlite3.Connection, suite: str | None = None) -> Result[str]:
    """Return the newest live run that is complete, of those that hold a suite if one is named."""
    found = db.execute(_LATEST_FINISHED, {"suite": suite}).fetchone()
    if found:
        return Ok(found[0])
    of_suite = "" if suite is None else f" of suite {suite!r}"
    return Err(
        KindlmError(
            ErrorCode.CONFIG_NOT_FOUND,
            f"No run{of_suite} has finished yet.",
            "List the recorded runs: kindlm runs",
        )
    )


def state_of(db: sqlite3.Connection, run: str, ended: str | None) -> str:
    """Return how a run stands: finished, interrupted, aborted, running or killed.

    `ended` is what is recorded of it: nothing while it runs, and after its process was killed.
    """
    if ended is not None:
        return ended
    file = db.execute("PRAGMA database_list").fetchone()[2]
    return "running" if is_held(file, f"run/{run}") else "killed"


def runner_of(db: sqlite3.Connection, run: str) -> str | None:
    """Return what chose the tests of a run and started them, such as pytest; None for kindlm."""
    row = db.execute(_RUNNER, (run,)).fetchone()
    return row[0] if row else None


def _row(values: dict[str, Any], paid: Paid) -> RunRow:
    values["cost_usd"] = paid.total_usd
    values["passed"] = None if values["passed"] is None else bool(values["passed"])
    values["suites"] = tuple(json.loads(values["suites"]))
    return RunRow(**values)


def _no_runs() -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND, "No run is recorded yet.", "Record one: kindlm test"
    )


def _unknown(db: sqlite3.Connection, wanted: str) -> KindlmError:
    shards = db.execute(
        "SELECT shard, id FROM runs WHERE group_id = ? ORDER BY started_at DESC, id LIMIT ?",
        (wanted, _NAMED_RUNS),
    ).fetchall()
    if shards:
        named = ", ".join(f"{run} ({shard})" for shard, run in shards)
        return KindlmError(
            ErrorCode.CONFIG_NOT_FOUND,
            f"{wanted!r} is a group of shards, and one run is asked for.",
            f"Name a run: its newest are {named}. All of them as one: kindlm show {wanted}",
        )
    newest = db.execute(
        "SELECT run, label FROM run_list ORDER BY started_at DESC, run LIMIT ?", (_NAMED_RUNS,)
    )
    names = ", ".join(f"{row[0]} ({row[1]})" if row[1] else row[0] for row in newest)
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"There is no run {wanted!r}.",
        f"The newest are {names}. All runs: kindlm runs" if names else "Record one: kindlm test",
    )


def _ambiguous(wanted: str, candidates: list[str]) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"{wanted!r} is the beginning of several runs: {', '.join(candidates)}.",
        "Type more characters of the run's id.",
    )
