"""What a run that did not finish has done so far, and what it was asked to do."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events import RunOptions, read
from kindlm.history.run_names import find_run
from kindlm.history.runs import runner_of
from kindlm.plan import Earlier
from kindlm_store import is_held, unreadable_wal

__all__ = [
    "RecordedSuite",
    "RecordedTest",
    "Unfinished",
    "find_unfinished",
    "read_unfinished",
]

_UNFINISHED = """
SELECT id FROM runs WHERE ended IS NOT 'finished' AND mode = ?
 ORDER BY started_at DESC, id
"""

_STARTED = """
SELECT data FROM event_log WHERE stream = 'run/' || ? AND type = 'run.started'
"""

_SUITES = """
SELECT id, ordinal, project, name, path, config_hash, baseline_run
  FROM suites WHERE run = ? ORDER BY ordinal
"""

_FIRST_STARTED = """
SELECT json_extract(data, '$.ordinal') FROM event_log
 WHERE stream = 'run/' || ? AND type = 'suite.started'
 GROUP BY 1 ORDER BY min(version)
"""

_TESTS = """
SELECT test, target, selected, skip, repeat FROM planned_tests WHERE suite = ? ORDER BY ordinal
"""

_EXECUTIONS = """
SELECT number, attempt, status,
       (SELECT count(*) FROM retried_attempts r WHERE r.execution = e.id)
  FROM executions e WHERE run = ?
"""

_SPENT = """
SELECT s.ordinal, sum(c.cost_usd)
  FROM executions e
  JOIN suites s ON s.id = e.suite
  JOIN provider_calls c ON c.execution = e.id
 WHERE e.run = ? AND c.cost_usd IS NOT NULL
 GROUP BY s.ordinal
"""

# A session lasts from its first event to the last one before the next session.
_SESSIONS = """
SELECT began.at, (SELECT at FROM event_log
                   WHERE stream = began.stream AND version < coalesce(
                           (SELECT min(version) FROM event_log
                             WHERE stream = began.stream AND type = 'run.resumed'
                               AND version > began.version), 1e18)
                   ORDER BY version DESC LIMIT 1)
  FROM event_log began
 WHERE began.stream = 'run/' || ? AND began.type IN ('run.started', 'run.resumed')
"""


_RESUMED_BY = {
    "live": "Resume it: kindlm test --resume {run}",
    "rescored": "Resume it: kindlm rescore --resume {run}",
    "replayed": "It costs nothing to begin it again: kindlm replay",
}


@dataclass(frozen=True, slots=True)
class RecordedTest:
    """A test as the run planned it."""

    name: str
    target: str
    selected: bool
    skip: bool
    repeat: int


@dataclass(frozen=True, slots=True)
class RecordedSuite:
    """A suite as the run began with it; `config_hash` is None for one that could not start."""

    ordinal: int
    name: str
    path: str
    config_hash: str | None
    tests: tuple[RecordedTest, ...]
    project: str | None = None
    baseline_run: str | None = None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that can be resumed, unless it `is_finished`.

    `planned` is how many executions it has, `started` the ordinals of the suites that have started,
    in the order in which they first did, `duration_ms` how long its sessions took together.
    """

    run: str
    options: RunOptions
    group: str | None
    planned: int
    suites: tuple[RecordedSuite, ...]
    started: tuple[int, ...]
    earlier: Earlier
    duration_ms: float
    is_finished: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether any execution has started; before, what it consists of may be half written."""
        return bool(self.earlier.finished or self.earlier.attempts)

    @property
    def baselines(self) -> dict[tuple[str, str], str | None]:
        """The baseline that each suite began with, by project and name; None for no baseline."""
        return {
            (suite.project, suite.name): suite.baseline_run
            for suite in self.suites
            if suite.project is not None
        }

    @property
    def started_paths(self) -> frozenset[str]:
        """The files of the suites that have started."""
        return frozenset(suite.path for suite in self.suites if suite.config_hash is not None)

    @property
    def selected(self) -> frozenset[tuple[str, str, str]]:
        """The tests that were selected, by suite, test and target."""
        return frozenset(
            (suite.name, test.name, test.target)
            for suite in self.suites
            for test in suite.tests
            if test.selected
        )


def find_unfinished(db: sqlite3.Connection, wanted: str, mode: str = "live") -> Result[str]:
    """Return the id of the run of a mode to resume.

    `latest` is the latest that is unfinished and that nobody is at, if there is one.
    """
    if wanted == "latest":
        every = [row[0] for row in db.execute(_UNFINISHED, (mode,)).fetchall()]
        unfinished = [run for run in every if runner_of(db, run) is None]
        file = db.execute("PRAGMA database_list").fetchone()[2]
        stopped = (run for run in unfinished if not is_held(file, f"run/{run}"))
        found = next(stopped, next(iter(unfinished), None))
        if found is not None:
            return Ok(found)
        if every:
            return Err(_run_by(every[0], runner_of(db, every[0]) or ""))
        if (wal := unreadable_wal(Path(file))) is not None:
            return Err(_lost(wal))
        has_runs = db.execute("SELECT EXISTS (SELECT 1 FROM runs)").fetchone()[0]
        return Err(
            _nothing_to_resume(
                "every recorded run has finished" if has_runs else "no run is recorded"
            )
        )
    run = find_run(db, wanted)
    if isinstance(run, Err):
        return run
    ended, is_a = db.execute("SELECT ended, mode FROM runs WHERE id = ?", (run.value,)).fetchone()
    if ended == "finished" or is_a != mode:
        return Err(_not_resumable(run.value, ended, is_a))
    # Whoever chose the tests of a run has to choose them again: kindlm can not go on with it.
    if (runner := runner_of(db, run.value)) is not None:
        return Err(_run_by(run.value, runner))
    return run


def read_unfinished(db: sqlite3.Connection, run: str) -> Unfinished:
    """Return what is recorded of a run that `find_unfinished` found."""
    started = json.loads(db.execute(_STARTED, (run,)).fetchone()[0])
    planned, ended = db.execute("SELECT planned, ended FROM runs WHERE id = ?", (run,)).fetchone()
    return Unfinished(
        run=run,
        options=read(RunOptions, started.get("options") or {}, str),
        group=started.get("group"),
        planned=planned,
        suites=tuple(_suite(db, row) for row in db.execute(_SUITES, (run,)).fetchall()),
        started=tuple(row[0] for row in db.execute(_FIRST_STARTED, (run,))),
        earlier=_earlier(db, run),
        duration_ms=_duration_ms(db.execute(_SESSIONS, (run,)).fetchall()),
        is_finished=ended == "finished",
    )


def _suite(db: sqlite3.Connection, row: sqlite3.Row) -> RecordedSuite:
    tests = db.execute(_TESTS, (row["id"],)).fetchall()
    return RecordedSuite(
        ordinal=row["ordinal"],
        name=row["name"],
        path=row["path"],
        config_hash=row["config_hash"],
        tests=tuple(
            RecordedTest(test[0], test[1], bool(test[2]), bool(test[3]), test[4]) for test in tests
        ),
        project=row["project"],
        baseline_run=row["baseline_run"],
    )


def _earlier(db: sqlite3.Connection, run: str) -> Earlier:
    finished: set[str] = set()
    attempts: dict[str, int] = {}
    reruns: dict[str, int] = {}
    for number, attempt, status, again in db.execute(_EXECUTIONS, (run,)):
        if status is None:
            attempts[str(number)] = attempt
            reruns[str(number)] = again
        else:
            finished.add(str(number))
    spent = {ordinal: float(usd) for ordinal, usd in db.execute(_SPENT, (run,))}
    return Earlier(frozenset(finished), attempts, reruns, spent)


def _duration_ms(sessions: Sequence[Sequence[str]]) -> float:
    return sum(
        max(0.0, (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds())
        for first, last in sessions
    ) * 1000  # fmt: skip


def _nothing_to_resume(reason: str) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"There is nothing to resume: {reason}.",
        "Run the tests: kindlm test",
    )


def _run_by(run: str, runner: str) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"Run {run} can not be resumed: {runner} chose its tests, and started them.",
        f"Run what failed or did not run, as a run of its own: {runner} --kindlm --lf",
    )


def _lost(wal: Path) -> KindlmError:
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"The write-ahead log {wal} can not be read: what was recorded last may be lost with it.",
        "Restore that file if there is a copy of it; else run the tests again: kindlm test",
    )


def _not_resumable(run: str, ended: str | None, mode: str) -> KindlmError:
    if ended == "finished":
        return KindlmError(
            ErrorCode.CONFIG_VALIDATION_ERROR,
            f"Run {run} has finished; there is nothing left of it to run.",
            f"Look at it: kindlm show {run}; run only what failed: kindlm test --failed",
        )
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"Run {run} is {mode}: it can not be resumed so.",
        _RESUMED_BY.get(mode, f"Look at it: kindlm show {run}").format(run=run),
    )
