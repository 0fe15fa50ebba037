"""When the disk does not take it: nothing that was submitted is forgotten."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kindlm_store import Append, EventLog, HeadOf, NewEvent, Redactor, Text, WriteFailedError
from kindlm_store.database import is_locked
from kindlm_store.verification import verify_file

SECRET = "sk-0123456789abcdef"


def fill_the_disk(log: EventLog) -> None:
    """Let SQLite believe that the disk has room for a few pages more."""

    def limit(connection: sqlite3.Connection) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 20}")

    log._writer.put(run=limit).result()


def test_a_full_disk_keeps_what_was_not_written(path: Path) -> None:
    async def main() -> None:
        log = EventLog.open(path, redact=Redactor([SECRET]))
        log.append("s", [NewEvent("t", {"n": 0})])
        fill_the_disk(log)
        appends = [
            Append(
                f"s/{number}",
                [
                    NewEvent(
                        "t",
                        {"n": number, "text": Text(f"{SECRET} {number} " + "x" * 20_000)},
                        subject="about",
                    ),
                    NewEvent("u", {"head": HeadOf("s"), "key": SECRET}, schema=2),
                ],
            )
            for number in range(1, 30)
        ]
        tickets = [log.submit(append) for append in appends]
        failed = []
        for append, ticket in zip(appends, tickets, strict=True):
            try:
                await ticket
            except WriteFailedError:
                failed.append(append)
        assert failed
        assert isinstance(log.failure, WriteFailedError)
        assert "full" in str(log.failure)
        late = Append("late", [NewEvent("t", {})])
        with pytest.raises(WriteFailedError):
            await log.submit(late)
        with pytest.raises(WriteFailedError):
            await log.flush()

        unwritten = log.unwritten()
        assert [append.stream for append in unwritten] == [*(a.stream for a in failed), "late"]
        first, original = unwritten[0], failed[0]
        assert [e.id for e in first.events] == [e.id for e in original.events]
        assert [e.at for e in first.events] == [e.at for e in original.events]
        number = original.events[0].data["n"]
        assert first.events[0].data == {
            "n": number,
            "text": Text(f"[redacted] {number} " + "x" * 20_000),
        }
        assert first.events[1].data == {"head": HeadOf("s"), "key": "[redacted]"}
        assert SECRET not in repr(unwritten)

        stored = {str(event.id) for event in log.read()}
        kept = {str(event.id) for append in unwritten for event in append.events}
        everything = {str(e.id) for append in (*appends, late) for e in append.events}
        assert stored & kept == set()
        assert everything <= stored | kept
        log.close()
        with EventLog.open(path) as again:
            assert verify_file(again.path).ok
            for append in unwritten:
                again.submit(append)
            again.flush().result()
            assert {str(event.id) for event in again.read()} == stored | kept
            assert verify_file(again.path).ok

    asyncio.run(main())


def test_a_deleted_file_is_no_longer_written(path: Path) -> None:
    with EventLog.open(path) as log:
        log.append("s", [NewEvent("t", {"n": 1})])
        path.unlink()
        with pytest.raises(WriteFailedError, match=r"log\.db: was moved or deleted$"):
            log.append("s", [NewEvent("t", {"n": 2})])
        assert [append.events[0].data for append in log.unwritten()] == [{"n": 2}]


def test_a_blocked_caller_is_reported(path: Path) -> None:
    log = EventLog.open(path)
    fill_the_disk(log)
    with pytest.raises(WriteFailedError, match="full"):
        log.append("s", [NewEvent("t", {"x": "y" * 1_000_000})])
    with pytest.raises(WriteFailedError):
        log.flush().result()
    with pytest.raises(WriteFailedError):
        log.rebuild()
    log.close()
    assert len(log.unwritten()) == 1


def test_an_error_without_an_sqlite_code_is_no_lock() -> None:
    """Python's sqlite3 module raises some errors by itself."""
    with (
        closing(sqlite3.connect(":memory:")) as db,
        pytest.raises(sqlite3.OperationalError) as raised,
    ):
        db.execute("SELECT CAST(x'ff' AS TEXT)").fetchall()
    assert not is_locked(raised.value)
