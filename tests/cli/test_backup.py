"""`kindlm history backup`: the copy is complete, checked, and overwrites nothing."""

from __future__ import annotations

import fcntl
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kindlm_store import NewEvent


@pytest.fixture
def recorded(history: Any, make: Any) -> Any:
    writer = history.run()
    writer.suite(tests=[make.planned()])
    writer.execution(user="my secret is blue-4711", assertions=(make.failed(),))
    writer.finish()
    return history


def facts(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return [
            *db.execute("SELECT * FROM event_log ORDER BY seq"),
            *db.execute("SELECT * FROM contents ORDER BY ref"),
            *db.execute("SELECT * FROM executions ORDER BY id"),
        ]


def test_it_holds_everything_also_what_is_in_the_wal(
    kindlm: Any, recorded: Any, here: Path
) -> None:
    assert recorded.path.with_name(recorded.path.name + "-wal").stat().st_size
    copy = here / "safe" / "copy.db"
    missing = kindlm("backup", copy, "--db", recorded.path)
    assert (missing.code, f"mkdir -p {copy.parent}" in missing.err.replace("\n  ", "")) == (1, True)
    assert not copy.parent.exists()
    copy.parent.mkdir()
    for folder in (copy.parent, ".", "/"):
        assert "is a folder" in kindlm("backup", folder, "--db", recorded.path).err
    outcome = kindlm("backup", copy, "--db", recorded.path)
    assert outcome.code == 0, outcome.err
    assert "9 events backed up" in outcome.err
    assert [file.name for file in copy.parent.iterdir()] == ["copy.db"]
    assert copy.stat().st_mode & 0o777 == 0o600
    assert facts(copy) == facts(recorded.path)
    shown = [
        kindlm("report", "--format", "json", "--db", file).out for file in (copy, recorded.path)
    ]
    assert shown[0] == shown[1]


def test_it_replaces_nothing(kindlm: Any, recorded: Any, here: Path) -> None:
    there = here / "there.db"
    there.write_text("precious")
    for file in (there, recorded.path):
        outcome = kindlm("backup", file, "--db", recorded.path)
        assert outcome.code == 1
        assert "never overwrites a file" in outcome.err
    assert there.read_text() == "precious"


def test_it_lives_on_as_a_history(kindlm: Any, recorded: Any, here: Path) -> None:
    kindlm("backup", here / "copy.db", "--db", recorded.path)
    recorded.log.append("journal/x", [NewEvent("said", {})])
    assert kindlm("merge", here / "copy.db", "--db", recorded.path).code == 0
    assert kindlm("merge", recorded.path, "--db", here / "copy.db").code == 0
    assert kindlm("verify", "--db", here / "copy.db").code == 0
    assert "kindlm history verify --db" in kindlm("verify", here / "copy.db").err
    with closing(sqlite3.connect(here / "copy.db")) as db:
        assert db.execute("PRAGMA auto_vacuum").fetchone()[0] == 2


def test_what_was_purged_is_in_no_backup(kindlm: Any, recorded: Any, here: Path) -> None:
    kindlm("purge", "--matching", "blue-4711", "--yes", "--db", recorded.path)
    kindlm("backup", here / "copy.db", "--db", recorded.path)
    kindlm("export", "-o", here / "export.jsonl", "--db", recorded.path)
    for file in (here / "copy.db", here / "export.jsonl"):
        assert b"blue-4711" not in file.read_bytes()
    old = here / "new.db"
    assert kindlm("import", here / "export.jsonl", "--db", old).code == 0
    # A file does not say why a text is not in it.
    assert "[withheld]" in kindlm("show", "latest", "1", "--db", old).out


def test_a_history_that_was_changed_is_not_backed_up(
    kindlm: Any, recorded: Any, here: Path
) -> None:
    with closing(sqlite3.connect(recorded.path, isolation_level=None)) as db:
        db.execute("DROP TRIGGER contents_update")
        db.execute("UPDATE contents SET body = 'x' WHERE body = 'Hi there.'")
    outcome = kindlm("backup", here / "copy.db", "--db", recorded.path)
    assert outcome.code == 1
    assert "kindlm history verify" in outcome.err
    assert not list(here.glob("*copy*")) + list(here.glob(".*copy*"))


def test_a_place_that_cannot_be_written(kindlm: Any, recorded: Any, here: Path) -> None:
    (here / "file").touch()
    outcome = kindlm("backup", here / "file" / "copy.db", "--db", recorded.path)
    assert outcome.code == 1
    assert "There is no folder" in outcome.err
    unwritable = kindlm("backup", "/proc/copy.db", "--db", recorded.path)
    assert unwritable.code == 1
    assert "cannot be written" in unwritable.err


def test_what_killed_backups_left_is_removed_and_what_is_written_stays(
    kindlm: Any, recorded: Any, here: Path
) -> None:
    names = [
        f".{name}.db.{number:08x}.kindlm-part" for number, name in enumerate(("copy", "other"))
    ]
    for name in names:
        (here / name).write_bytes(b"SQLite format 3\0 and all texts")
        (here / f"{name}-wal").touch()
    other, written = here / ".film.mkv.0000000b.part", here / ".copy.db.0000000a.kindlm-part"
    for file in (other, written):
        file.touch()
    with written.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert kindlm("backup", here / "copy.db", "--db", recorded.path).code == 0
        assert {*here.glob(".*part*")} == {other, written}
    (here / names[0]).touch()
    kindlm("purge", "--matching", "Hi", "--yes", "--db", recorded.path)
    assert {*here.glob(".*part*")} == {other}


def test_what_a_killed_backup_left_goes_as_erasures_are_merged(
    kindlm: Any, recorded: Any, here: Path
) -> None:
    copy = here / "elsewhere" / "copy.db"
    copy.parent.mkdir()
    assert kindlm("backup", copy, "--db", recorded.path).code == 0
    left = recorded.path.parent / ".copy.db.0000000a.kindlm-part"
    left.write_bytes(b"SQLite format 3\0 and all texts")
    assert kindlm("merge", copy, "--db", recorded.path).code == 0
    assert left.exists()
    assert kindlm("purge", "--run", "latest", "--yes", "--db", copy).code == 0
    assert kindlm("merge", copy, "--db", recorded.path).code == 0
    assert not left.exists()
