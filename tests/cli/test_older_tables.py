"""Tables that an older version of kindlm wrote are updated by the command that reads them."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kindlm.projections import PROJECTIONS

FIRST, SECOND = "k3f9x2ab", "m4g8y3cd"


@pytest.fixture
def recorded(history: Any, make: Any) -> Any:
    """A history with two finished runs of one test."""
    for run, outcome in ((FIRST, make.passed()), (SECOND, make.failed())):
        writer = history.run(run)
        writer.suite(tests=[make.planned()])
        writer.execution(assertions=(outcome,))
        writer.finish()
    history.close()
    return history


def make_older(path: Path) -> None:
    """Leave a history as an older version would: no table or view is one that this code reads."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for tables, views in db.execute("SELECT tables, views FROM projections").fetchall():
            for view in json.loads(views):
                db.execute(f'DROP VIEW "{view}"')
            for table in json.loads(tables):
                db.execute(f'DROP TABLE "{table}"')
        db.execute("UPDATE projections SET version = version - 1, tables = '[]', views = '[]'")


def versions(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as db:
        return dict(db.execute("SELECT name, version FROM projections"))


@pytest.mark.parametrize(
    "command",
    [
        ("runs",),
        ("show", FIRST),
        ("export", FIRST),
        ("runs", "--test", "greets"),
    ],
    ids=" ".join,
)
def test_a_reading_command_updates_them(
    kindlm: Any, recorded: Any, command: tuple[str, ...]
) -> None:
    before = kindlm(*command, "--db", recorded.path)
    make_older(recorded.path)
    after = kindlm(*command, "--db", recorded.path)
    assert after == before
    assert after.out
    assert versions(recorded.path) == {each.name: each.version for each in PROJECTIONS}


def test_a_long_history_says_that_it_takes_a_while(
    kindlm: Any, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kindlm.cli.history._MANY_EVENTS", 1)
    make_older(recorded.path)
    said = "Updating the tables of this history for this version of kindlm …\n"
    assert kindlm("show", "--db", recorded.path).err == said
    assert kindlm("show", "--db", recorded.path).err == ""


def test_an_interrupted_run_is_found_to_be_resumed(kindlm: Any, history: Any, make: Any) -> None:
    writer = history.run(FIRST, planned=2)
    writer.suite(tests=[make.planned(repeat=2)])
    writer.execution(assertions=(make.passed(),))
    writer.interrupt()
    history.close()
    resume = ("test", "--resume", FIRST, "--db", history.path)
    before = kindlm(*resume)
    make_older(history.path)
    after = kindlm(*resume)
    assert after == before
    assert "kindlm.yaml" in after.err, "the run is found; what it tested is not there"


def test_two_processes_may_do_it_at_once(kindlm: Any, process: Any, recorded: Any) -> None:
    before = kindlm("runs", "--db", recorded.path)
    make_older(recorded.path)
    both = [process("runs", "--db", recorded.path) for _ in range(2)]
    for each in both:
        out, err = each.communicate(timeout=60)
        assert (each.returncode, out.decode(), err.decode()) == (0, before.out, before.err)


@pytest.mark.parametrize("command", ["show", "export"])
def test_a_file_that_cannot_be_written_is_an_error(
    kindlm: Any, recorded: Any, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    make_older(recorded.path)
    older = versions(recorded.path)
    # Root may write everything: what the file system would say is said for it.
    monkeypatch.setattr("kindlm_store.database.os.access", lambda _, mode: mode != os.W_OK)
    outcome = kindlm(command, FIRST, "--db", recorded.path)
    assert (outcome.code, outcome.out) == (1, "")
    said = " ".join(outcome.err.split())
    assert "kindlm cannot read the tables of this history" in said
    assert "Compute them: kindlm history rebuild" in said
    rebuilt = kindlm("rebuild", "--db", recorded.path)
    assert (rebuilt.code, "the file or its folder is read-only" in rebuilt.err) == (1, True)
    assert "history_version_mismatch" in said
    assert versions(recorded.path) == older


def test_older_tables_beside_newer_ones_are_left_alone(kindlm: Any, recorded: Any) -> None:
    make_older(recorded.path)
    with closing(sqlite3.connect(recorded.path, isolation_level=None)) as db:
        db.execute("UPDATE projections SET version = 999 WHERE name = 'runs'")
    left = versions(recorded.path)
    outcome = kindlm("runs", "--db", recorded.path)
    assert outcome.code == 1
    assert "update the program" in outcome.err
    assert "Update kindlm." in outcome.err
    assert versions(recorded.path) == left
