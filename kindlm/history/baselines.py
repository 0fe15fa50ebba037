"""Baselines: the recorded runs that later runs are compared with.

A suite may have one baseline for each label; the one that was set last is active.
"""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial

from kindlm.dataclass import dataclass
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.groups import Group, group_of
from kindlm.history.queries import among, value_of
from kindlm.plan import Execution, QualifiedName

_LIST = """
SELECT b.*, b."by" AS set_by, b.at AS set_at, a.run IS NOT NULL AS active,
       (SELECT value FROM json_each(coalesce(b.runs, json_array(b.run)))
         WHERE value NOT IN (SELECT id FROM runs) LIMIT 1) AS missing,
       CASE WHEN b.runs IS NOT NULL THEN (SELECT group_id FROM runs r WHERE r.id = b.run) END
         AS group_id
  FROM baselines b
  LEFT JOIN active_baselines a
    ON a.project = b.project AND a.suite = b.suite AND a.label = b.label
 WHERE b.run IS NOT NULL
"""

_ORDER = " ORDER BY b.project, b.suite, active DESC, b.at DESC, b.label"

_LATEST = "SELECT max(at) FROM baselines WHERE project = ? AND suite = ?"

_SUITE = """
SELECT EXISTS (SELECT 1 FROM suites WHERE run = :run AND project = :project AND name = :suite
                  AND error_code IS NULL) AS suite_known,
       EXISTS (SELECT 1
                 FROM suites s
                 JOIN executions e ON e.suite = s.id
                 LEFT JOIN contents c ON c.ref = e.output_ref
                WHERE s.run = :run AND s.project = :project AND s.name = :suite
                  AND e.output_ref IS NOT NULL AND c.body IS NULL) AS purged
"""

# The first repeat that passed, else the first with a text.
_OUTPUT = """
SELECT c.body
  FROM suites s
  JOIN executions e ON e.suite = s.id
  LEFT JOIN contents c ON c.ref = e.output_ref
 WHERE s.run IN $ids AND s.project = :project AND s.name = :suite
   AND e.test = :test AND e.target = :target
 ORDER BY e.status IS NOT 'passed', e.output_ref IS NULL, e.repeat
 LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A baseline that is set; `set_at` is UTC, ISO 8601.

    `missing` is a run of it that is not in this history; a journal may be merged without it. For a
    group, `run` is that of its first shard.
    """

    project: str
    suite: str
    label: str
    run: str
    runs: tuple[str, ...]
    group_id: str | None
    set_by: str
    set_at: str
    active: bool
    missing: str | None

    @property
    def name(self) -> str:
        """The argument for `kindlm show`: the id of the run, or the name of the group."""
        return self.group_id or self.run

    @property
    def what(self) -> str:
        """The run or group, in words."""
        return f"group {self.group_id}" if self.group_id else f"run {self.run}"

    def side(self, db: sqlite3.Connection) -> str | Group:
        """Return the run, or the group of the chosen shards."""
        return self.run if len(self.runs) == 1 else group_of(db, self.runs)


def list_baselines(db: sqlite3.Connection, suite: str | None = None) -> list[Baseline]:
    """Return all baselines that are set, or those of one suite; active ones come first."""
    rows = db.execute(
        f"{_LIST} AND (:suite IS NULL OR b.suite = :suite) {_ORDER}", {"suite": suite}
    )
    found = []
    for row in rows:
        runs = (row["run"],) if row["runs"] is None else tuple(json.loads(row["runs"]))
        found.append(value_of(Baseline, row, runs=runs, active=bool(row["active"])))
    return found


def find_baseline(
    db: sqlite3.Connection, project: str, suite: str, label: str | None = None
) -> Baseline | None:
    """Return the active baseline of a suite, or that with a label, which may be empty."""
    for each in list_baselines(db, suite):
        if each.project == project and (each.active if label is None else each.label == label):
            return each
    return None


def last_change(db: sqlite3.Connection, project: str, suite: str) -> str | None:
    """Return when a baseline of a suite was set or removed last; UTC, ISO 8601."""
    at: str | None = db.execute(_LATEST, (project, suite)).fetchone()[0]
    return at


class BaselineChecks:
    """Checks whether runs can be baselines, and verifies the hashes of each run once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._change_of = cache(partial(_change_of, db))

    def corruption(self, runs: Iterable[str], project: str, suite: str) -> KindlmError | None:
        """Return why a run, or shards of a group, cannot be the baseline of a suite, or None."""
        for run in runs:
            named = {"run": run, "project": project, "suite": suite}
            known = self._db.execute(_SUITE, named).fetchone()
            if not known["suite_known"]:
                why = "this history has no results of the suite in that run"
            elif known["purged"]:
                why = "its outputs were purged or withheld"
            elif (changed := self._change_of(run)) is not None:
                why = f"the run was changed after it was recorded: {changed}"
            else:
                continue
            message = f'The baseline of suite "{suite}", run {run}, cannot be used: {why}.'
            hint = "Choose another run: kindlm baseline set RUN"
            return KindlmError(ErrorCode.BASELINE_CORRUPT, message, hint)
        return None

    def change(self, runs: Iterable[str]) -> KindlmError | None:
        """Return an error about the first run that was changed after it was recorded, or None."""
        for run in runs:
            if (changed := self._change_of(run)) is not None:
                message = f"The baseline, run {run}, was changed after it was recorded: {changed}."
                hint = f"See: kindlm history verify {run}. Choose another run: kindlm baseline set"
                return KindlmError(ErrorCode.BASELINE_CORRUPT, message, f"{hint} RUN")
        return None


def _change_of(db: sqlite3.Connection, run: str) -> str | None:
    from kindlm.events.run import SEALED_HEADS
    from kindlm_store.verification import verify_file

    stream = f"run/{run}"
    file = db.execute("PRAGMA database_list").fetchone()[2]
    found = verify_file(file, stream, claims=SEALED_HEADS)
    # Problems of other streams do not matter.
    return next((one.what for one in found.problems if one.stream in (stream, None)), None)


def no_baseline(suite: str, label: str | None = None) -> KindlmError:
    """Return the error that a suite has no baseline, or no baseline with a label."""
    hint = f"Run: kindlm baseline set{f' --label {shlex.quote(label)}' if label else ''}"
    message = f'Baseline not found for suite "{suite}".'
    return KindlmError(ErrorCode.BASELINE_NOT_FOUND, message, hint)


def output_of(db: sqlite3.Connection, runs: Sequence[str], test: QualifiedName) -> str | None:
    """Return the final text of the first repeat that passed, else of the first with a text."""
    named = {"project": test.project, "suite": test.suite, "target": test.target}
    row = db.execute(*among(_OUTPUT, runs, test=test.name, **named)).fetchone()
    return None if row is None else row[0]


class RecordedBaselines:
    """Looks baselines up in a history; for the engine.

    Each suite keeps its baseline for the whole run. `chosen` has the runs that earlier sessions of
    the run found, by project and suite.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        chosen: Mapping[tuple[str, str], str | None] | None = None,
    ) -> None:
        self._db = db
        self._checks = BaselineChecks(db)
        self._chosen = chosen or {}
        self._runs = cache(self._find)

    def run(self, project: str, suite: str) -> Result[str | None]:
        """Return the active baseline, for a group its first shard; or BASELINE_CORRUPT."""
        found = self._runs(project, suite)
        return found if isinstance(found, Err) else Ok(next(iter(found.value), None))

    def text(self, execution: Execution) -> Result[str | None]:
        """Return the text that the output of a test is compared with."""
        suite = execution.suite.suite
        runs = self._runs(suite.project, suite.name)
        if isinstance(runs, Err):
            return runs
        return Ok(output_of(self._db, runs.value, execution.test))

    def _find(self, project: str, suite: str) -> Result[tuple[str, ...]]:
        set_ = [each for each in list_baselines(self._db, suite) if each.project == project]
        runs: tuple[str, ...] = next((each.runs for each in set_ if each.active), ())
        chosen = self._chosen.get((project, suite), ...)
        if isinstance(chosen, str):
            # Events name a group by the run of its first shard.
            runs = next((each.runs for each in set_ if each.run == chosen), (chosen,))
        problem = self._checks.corruption(runs, project, suite)
        # Earlier sessions recorded None without a usable baseline.
        return Ok(() if chosen is None else runs) if problem is None else Err(problem)
