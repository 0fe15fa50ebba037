"""What the workers of a run push, shown on the terminal as if it happened here."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from kindlm.cli.commands.tail import why_not_passed
from kindlm.engine.attempt import Finished
from kindlm.errors import ErrorCode, KindlmError
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.plan import Plan
from kindlm.recording.request import Watcher

_ENDED = """
SELECT l.version, l.data ->> '$.status' AS status, e.id, e.test, e.target, e.repeat, s.path,
       (SELECT total(c.cost_usd) FROM counted_calls c WHERE c.execution = e.id) AS cost_usd
  FROM event_log l
  JOIN executions e ON e.id = :run || '-' || CAST(l.subject AS INTEGER)
  JOIN suites s ON s.id = e.suite
 WHERE l.stream = 'run/' || :run AND l.version > :version AND l.type = 'execution.finished'
   AND NOT coalesce(l.data ->> '$.retried', 0)
 ORDER BY l.version
"""


class WorkerNews:
    """Follows the runs of a group in the history; `earlier` are those that are there already."""

    def __init__(
        self, db: sqlite3.Connection, plan: Plan, earlier: Iterable[str], watcher: Watcher
    ) -> None:
        self._db = db
        self._watcher = watcher
        self._versions: dict[str, int] = {}
        self._planned = {
            (each.suite.suite.path, each.case.name, each.target, each.repeat): each for each in plan
        }
        done = (self._planned.get(_key(row)) for run in earlier for row in self._ended(run))
        watcher.planned(plan, {each.id for each in done if each is not None})

    def tell(self, runs: Iterable[str]) -> None:
        """Show which executions of some runs have ended since the last time."""
        for run in runs:
            for row in self._ended(run):
                if (execution := self._planned.get(_key(row))) is None:
                    continue
                status, error = Status(row["status"]), None
                if status in (Status.FAILED, Status.ERRORED):
                    view = RunView(self._db, run)
                    found = view.execution(row["id"])
                    why = "" if found is None else why_not_passed(view, found)
                    error = KindlmError(ErrorCode.UNKNOWN_ERROR, why)
                self._watcher.finished(Finished(execution, status, error, cost_usd=row["cost_usd"]))

    def _ended(self, run: str) -> Iterator[sqlite3.Row]:
        known = {"run": run, "version": self._versions.get(run, 0)}
        for row in self._db.execute(_ENDED, known).fetchall():
            self._versions[run] = row["version"]
            yield row


def _key(row: sqlite3.Row) -> tuple[str, str, str, int]:
    return row["path"], row["test"], row["target"], row["repeat"]
