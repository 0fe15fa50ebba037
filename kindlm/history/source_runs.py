"""Reads a run that another run is derived from: its suites, tests and executions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

from kindlm.dataclass import dataclass
from kindlm.errors import Err, Ok, Result, not_there
from kindlm.history.queries import body_of, value_of
from kindlm.history.runs import Run, RunFilter, options_of, runs
from kindlm.plan import QualifiedName
from kindlm.transcript import Role

_NAMED = "s.run = :run AND (:suite IS NULL OR s.name = :suite)"
_WANTED = f"{_NAMED} AND s.error_code IS NULL"
_UNLOADED = f"SELECT count(*) FROM suites s WHERE {_NAMED} AND s.error_code IS NOT NULL"  # noqa: S608

_SUITES = f"""
SELECT project, name, path,
       (SELECT json_group_array(DISTINCT file) FROM planned_tests
         WHERE suite = s.id AND selected AND file IS NOT NULL) AS files
  FROM suites s WHERE {_WANTED} ORDER BY ordinal
"""  # noqa: S608 (constants of this module)

_TESTS = f"""
SELECT s.project, s.name, p.test, p.target, p.selected, p.skip, p.repeat AS planned,
       json_group_array(e.repeat) FILTER (WHERE e.status IS NOT NULL) AS ended,
       max(e.status <> 'skipped') AS has_run,
       max(CASE WHEN e.status <> 'skipped' THEN e.messages END) AS messages
  FROM suites s
  JOIN planned_tests p ON p.suite = s.id
  LEFT JOIN executions e ON e.suite = p.suite AND e.test = p.test AND e.target = p.target
 WHERE {_WANTED}
 GROUP BY s.ordinal, p.suite, p.test, p.target
"""  # noqa: S608 (constants of this module)


@dataclass(frozen=True, slots=True)
class SourceTest:
    """A test as the run defined it, with the numbers of its repeats.

    `first` are the messages that a conversation began with, by role, except purged ones.
    """

    selected: bool
    ended: tuple[int, ...]
    planned: tuple[int, ...]
    first: Mapping[Role, str]


@dataclass(frozen=True, slots=True)
class SourceSuite:
    """A suite of the run; if it has several files, `files` are those with selected tests."""

    project: str
    name: str
    path: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceRun:
    """A run that another run can be derived from.

    `compat` is the program by whose rules its cases were judged, None for kindlm. `unloaded` is the
    number of suites that could not be loaded.
    """

    info: Run
    suites: tuple[SourceSuite, ...]
    tests: Mapping[QualifiedName, SourceTest]
    compat: str | None
    paths: tuple[str, ...]
    unloaded: int


def read_source(db: sqlite3.Connection, run: str, suite: str | None = None) -> Result[SourceRun]:
    """Return the record of a run, or of one suite of it; an error if it cannot be used again."""
    (info,) = runs(db, RunFilter(ids=[run]))
    if info.mode == "generation":
        message = f"Run {run} generated tests, and tested nothing."
        return Err(not_there(message, "Choose a test run: kindlm runs"))
    if info.state == "running":
        return Err(not_there(f"Run {run} is still running.", "Wait until it has ended."))
    if info.mode == "settled":
        message = f"Run {run} only adds repeats to run {info.source_run}."
        return Err(not_there(message, f"Choose run {info.source_run}."))
    wanted = {"run": run, "suite": suite}
    tests = db.execute(_TESTS, wanted).fetchall()
    if not any(test["has_run"] for test in tests):
        of = "" if suite is None else f" of suite {suite!r}"
        message = f"Run {run} recorded nothing{of}."
        return Err(not_there(message, "Choose another run: kindlm runs"))
    options = options_of(db, run)[run]
    return Ok(
        SourceRun(
            info=info,
            suites=tuple(value_of(SourceSuite, row) for row in db.execute(_SUITES, wanted)),
            tests={QualifiedName(*row[:4]): _test(db, row) for row in tests},
            compat=options.get("compat"),
            paths=tuple(options.get("paths") or ()),
            unloaded=db.execute(_UNLOADED, wanted).fetchone()[0],
        )
    )


def _test(db: sqlite3.Connection, row: sqlite3.Row) -> SourceTest:
    planned = tuple(range(1, 2 if row["skip"] else row["planned"] + 1)) if row["selected"] else ()
    texts = {
        Role(each["role"]): body_of(db, each["text"]["$ref"])
        for each in json.loads(row["messages"] or "[]")
    }
    first = {role: text for role, text in texts.items() if text is not None}
    return value_of(SourceTest, row, planned=planned, first=first)
