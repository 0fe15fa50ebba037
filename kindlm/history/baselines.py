"""Baselines: the recorded runs that later runs are compared with.

A suite may have one baseline for each label; the one that was set last is active.
"""

from __future__ import annotations

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
SELECT coalesce(b.runs, json_array(b.run)) AS runs, b.*, b."by" AS set_by, b.at AS set_at,
       a.run IS NOT NULL AS active,
       (SELECT value FROM json_each(coalesce(b.runs, json_array(b.run)))
         WHERE value NOT IN (SELECT id FROM runs) LIMIT 1) AS missing,
       iif(b.runs IS NULL, NULL, (SELECT group_id FROM runs r WHERE r.id = b.run)) AS group_id
  FROM baselines b
  LEFT JOIN active_baselines a
    ON a.project = b.project AND a.suite = b.suite AND a.label = b.label
 WHERE b.run IS NOT NULL AND (:suite IS NULL OR b.suite = :suite)
 ORDER BY b.project, b.suite, active DESC, b.at DESC, b.label
"""

_WHY_UNUSABLE = """
SELECT CASE WHEN count(*) = 0 THEN 'this history has no results of the suite in that run'
            WHEN max(EXISTS (SELECT 1 FROM executions e
                               LEFT JOIN contents c ON c.ref = e.output_ref
                              WHERE e.suite = s.id AND e.output_ref IS NOT NULL AND c.body IS NULL))
            THEN 'its outputs were purged or withheld' END
  FROM suites s
 WHERE s.run = ? AND s.project = ? AND s.name = ? AND s.error_code IS NULL
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
    return [value_of(Baseline, row) for row in db.execute(_LIST, {"suite": suite})]


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
    query = "SELECT max(at) FROM baselines WHERE project = ? AND suite = ?"
    at: str | None = db.execute(query, (project, suite)).fetchone()[0]
    return at


class BaselineChecks:
    """Checks whether runs can be baselines, and verifies the hashes of each run once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._change_of = cache(partial(_change_of, db))

    def corruption(self, runs: Iterable[str], *suite: str) -> KindlmError | None:
        """Return why a run, or shards of a group, cannot be a baseline; None if they can.

        It is that of a suite, if its project and name are given.
        """
        for run in runs:
            of_suite, why, hint = "", None, "Choose another run: kindlm baseline set RUN"
            if suite:
                of_suite = f' of suite "{suite[1]}"'
                why = self._db.execute(_WHY_UNUSABLE, (run, *suite)).fetchone()[0]
            if why is None and (changed := self._change_of(run)) is not None:
                why = f"the run was changed after it was recorded: {changed}"
                hint = f"See: kindlm history verify {run}. {hint}"
            if why is not None:
                message = f"The baseline{of_suite}, run {run}, cannot be used: {why}."
                return KindlmError(ErrorCode.BASELINE_CORRUPT, message, hint)
        return None


def _change_of(db: sqlite3.Connection, run: str) -> str | None:
    from kindlm.events.run import SEALED_HEADS
    from kindlm_store.verification import verify_file

    stream = f"run/{run}"
    file = db.execute("PRAGMA database_list").fetchone()[2]
    found = verify_file(file, stream, claims=SEALED_HEADS)
    # Problems of other streams do not matter.
    return next((each.what for each in found.problems if each.stream in (stream, None)), None)


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
    """Looks baselines up in a history; its `text` is the `baselines` of `engine.resources.Ports`.

    Each suite keeps its baseline for the whole run. `chosen` has the runs that earlier sessions of
    the run found, by project and suite.
    """

    def __init__(
        self, db: sqlite3.Connection, chosen: Mapping[tuple[str, str], str | None] | None = None
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
        runs = self._runs(execution.suite.suite.project, execution.suite.suite.name)
        if isinstance(runs, Err):
            return runs
        return Ok(output_of(self._db, runs.value, execution.test))

    def _find(self, project: str, suite: str) -> Result[tuple[str, ...]]:
        known = [each for each in list_baselines(self._db, suite) if each.project == project]
        runs: tuple[str, ...] = next((each.runs for each in known if each.active), ())
        is_known = (project, suite) in self._chosen
        chosen = self._chosen.get((project, suite))
        if chosen is not None:
            # Events name a group by the run of its first shard.
            runs = next((each.runs for each in known if each.run == chosen), (chosen,))
        if (problem := self._checks.corruption(runs, project, suite)) is not None:
            return Err(problem)
        # Earlier sessions recorded None without a usable baseline.
        return Ok(() if is_known and chosen is None else runs)
