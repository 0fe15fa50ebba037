"""Writes that a damaged write-ahead log takes with it, which SQLite says nothing of."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kindlm.history.read_models import lost_writes

WRITES = 20
PAGE = 4096


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Path]:
    """A database as a process leaves it that is killed: the writes are in the log."""
    path = tmp_path / "live.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("CREATE TABLE t (x)")
        for _ in range(WRITES):
            db.execute("INSERT INTO t VALUES (randomblob(3000))")
        db.execute("BEGIN")
        db.execute("PRAGMA cache_size = 1")
        db.executemany("INSERT INTO t VALUES (randomblob(?))", [(9_000,)] * 50)
        yield copied(path)


def copied(path: Path) -> Path:
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    shutil.copy(f"{path}-wal", f"{copy}-wal")
    return copy


def damage(path: Path, at: int) -> None:
    with Path(f"{path}-wal").open("r+b") as log:
        log.seek(at)
        log.write(b"\x5a" * 64)


def lost(path: Path) -> tuple[int, int]:
    """Return how many rows are missing, and how many writes are said to be lost."""
    with closing(sqlite3.connect(path)) as db:
        try:
            (rows,) = db.execute("SELECT count(*) FROM t").fetchone()
        except sqlite3.OperationalError:  # the table is lost, too, which was a write
            rows = -1
        return WRITES - rows, lost_writes(path)


def test_a_log_that_is_whole_has_lost_nothing(killed: Path) -> None:
    """What was not committed has not been lost."""
    assert Path(f"{killed}-wal").stat().st_size > (WRITES + 50) * PAGE
    assert lost(killed) == (0, 0)


@pytest.mark.parametrize("at", [0, 40, 50 * 1_000, 80 * 1_000])
def test_what_follows_damage_is_counted(killed: Path, at: int) -> None:
    damage(killed, at)
    missing, counted = lost(killed)
    assert missing > 0
    # The journal mode is in the file, the table and the rows were in the log.
    assert counted == missing


def test_what_is_left_of_before_the_log_began_anew_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t (x)")
        for _ in range(WRITES - 1):
            db.execute("INSERT INTO t VALUES (randomblob(3000))")
        db.execute("PRAGMA wal_checkpoint(RESTART)")
        assert lost_writes(path) == 0
        db.execute("INSERT INTO t VALUES (1)")
        assert lost_writes(path) == 0
        assert lost(copied(path)) == (0, 0)


def test_without_a_log_nothing_is_lost(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        db.execute("CREATE TABLE t (x)")
    assert lost_writes(tmp_path / "a.db") == 0
    Path(tmp_path / "a.db-wal").write_bytes(b"short")
    assert lost_writes(tmp_path / "a.db") == 0
