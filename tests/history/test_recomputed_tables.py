"""Tables that somebody changed are told from those that the events give."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from kindlm.history.read_models import changed_tables
from kindlm.projections import PROJECTIONS
from kindlm_store import Projection

CHANGES = [
    ("runs", "UPDATE runs SET passed = 1"),
    ("planned_tests", "DELETE FROM planned_tests WHERE test = 'refunds'"),
    ("executions", "UPDATE executions SET status = 'passed' WHERE test = 'refunds'"),
    (
        "executions",
        "INSERT INTO executions (id, suite) SELECT suite || test, suite FROM planned_tests",
    ),
    ("assertions", "DELETE FROM assertions WHERE outcome = 'failed'"),
    ("reviews", "INSERT INTO reviews VALUES ('k3f9x2ab-1', 'eve', 'other', 1, NULL, '', '')"),
    ("baselines", "INSERT INTO baselines VALUES ('p', 's', '', 'k3f9x2ab', 'eve', '', '', '')"),
    ("tests", "DROP VIEW tests; CREATE VIEW tests AS SELECT * FROM planned_tests"),
    ("gates", "ALTER TABLE gates ADD COLUMN more TEXT"),
]
"""A table or view, and how somebody changes it."""


@pytest.fixture
def run(history: Any, make: Any) -> Any:
    writer = history.run(label="nightly")
    writer.suite(tests=[make.planned(repeat=2), make.planned("refunds")], gates={"judgeAvgMin": 1})
    for repeat in (1, 2):
        writer.execution(repeat=repeat, tools=(("lookup", {}, {}),), assertions=(make.passed(),))
    writer.execution("refunds", assertions=(make.failed(),))
    history.review(writer.finish().id, 1, passed=True, note="fine", by="ada")
    other = history.run("other000")
    other.suite(tests=[make.planned()])
    other.execution(assertions=(make.failed(),))
    other.finish()
    return writer


def test_what_was_recorded_is_what_its_events_give(history: Any, run: Any) -> None:
    assert changed_tables(history.path, [run.id, "other000"]) == []


def test_so_it_is_of_a_run_that_goes_on(history: Any, make: Any) -> None:
    writer = history.run("goeson00", planned=2)
    writer.suite(tests=[make.planned(repeat=2)])
    writer.execution(assertions=(make.passed(),))
    writer.leave()
    assert changed_tables(history.path, ["goeson00"]) == []


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=[name for name, _ in CHANGES])
def test_a_table_that_was_changed_is_named(history: Any, run: Any, name: str, change: str) -> None:
    with closing(sqlite3.connect(history.path)) as db:
        db.executescript(change)
    (said,) = changed_tables(history.path, [run.id])
    assert f" {name} is not " in said


def test_rows_of_another_run_do_not_matter(history: Any, run: Any) -> None:
    with closing(sqlite3.connect(history.path)) as db, db:
        db.execute("UPDATE executions SET status = 'passed' WHERE run = 'other000'")
    assert changed_tables(history.path, [run.id]) == []
    assert len(changed_tables(history.path, [run.id, "other000"])) == 1


def test_text_that_is_no_text_is_reported_and_not_raised(history: Any, run: Any) -> None:
    with closing(sqlite3.connect(history.path)) as db, db:
        db.execute("UPDATE runs SET label = CAST(x'ff' AS TEXT)")
    (said,) = changed_tables(history.path, [run.id])
    assert said.startswith("the tables of run k3f9x2ab cannot be compared")


def test_tables_that_are_outdated_are_reported_as_that(history: Any, run: Any) -> None:
    with closing(sqlite3.connect(history.path)) as db, db:
        db.execute("UPDATE projections SET version = 1 WHERE name = 'executions'")
    (said,) = changed_tables(history.path, [run.id])
    assert "older than" in said


def test_every_table_is_looked_at(history: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    beyond = Projection("beyond", 1, "CREATE TABLE beyond (id TEXT, PRIMARY KEY (id))")
    with closing(sqlite3.connect(history.path)) as db, db:
        db.execute("CREATE TABLE beyond (id TEXT, PRIMARY KEY (id))")
        db.execute("INSERT INTO projections VALUES ('beyond', 1, 0, NULL, '[]', '[]')")
    monkeypatch.setattr("kindlm.history.read_models.PROJECTIONS", (*PROJECTIONS, beyond))
    (said,) = changed_tables(history.path, [run.id])
    assert "cannot be compared with its events: no such column: run" in said
