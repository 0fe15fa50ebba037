"""Resuming a run whose last writes are lost with a damaged log."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from pages import one_line

HISTORY = Path(".kindlm/kindlm.db")
COPY = Path("copy.db")


def stopped_runs(kindlm):
    """Leave a run in the file, and one in the log, since somebody reads."""
    assert kindlm("init", ".").code == 0
    assert kindlm("test").code == 0
    with closing(sqlite3.connect(HISTORY, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM runs").fetchone()
        assert kindlm("test", "--max-time", "0").code == 1
        shutil.copy(HISTORY, COPY)
        shutil.copy(f"{HISTORY}-wal", f"{COPY}-wal")


def damage(part: float) -> None:
    log = Path(f"{COPY}-wal")
    content = bytearray(log.read_bytes())
    at = int(len(content) * part)
    content[at : at + 200] = b"\x5a" * 200
    log.write_bytes(content)


def test_a_run_that_is_lost_as_a_whole_is_not_taken_for_finished(kindlm):
    stopped_runs(kindlm)
    damage(0.0)
    outcome = kindlm("test", "--resume", "--db", COPY)
    assert outcome.code == 1
    assert "copy.db-wal cannot be read" in one_line(outcome.err)


def test_a_run_whose_end_is_lost_goes_on(kindlm):
    stopped_runs(kindlm)
    damage(0.9)
    assert kindlm("test", "--resume", "--db", COPY).code == 0
