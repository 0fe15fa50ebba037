"""Disks that are full or read-only, files that are cut off or overwritten: said, never guessed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kindlm_store import (
    Append,
    EventLog,
    NewEvent,
    OpenError,
    Text,
    Ticket,
    WriteFailedError,
    open_reader,
)
from kindlm_store.verification import verify_file

APPEND_AND_DIE = """
import os, signal, sys
from kindlm_store import *
log = EventLog.open(sys.argv[1])
for number in range(200):
    log.append("s", [NewEvent("t", {"n": number, "text": Text(f"{number} " * 50)})])
os.kill(os.getpid(), signal.SIGKILL)
"""


def leave_a_wal(path: Path) -> Path:
    """200 events, all of them in the WAL of a process that was killed."""
    process = subprocess.run([sys.executable, "-c", APPEND_AND_DIE, str(path)], check=False)
    assert process.returncode == -9
    wal = path.with_name(path.name + "-wal")
    assert wal.stat().st_size > 100_000
    # The index of the WAL is lost with the machine's power; whoever opens the file makes it anew.
    path.with_name(path.name + "-shm").unlink()
    return wal


def numbers(path: Path) -> list[int]:
    with EventLog.open(path) as log:
        assert verify_file(log.path).ok
        return [event.data["n"] for event in log.read()]


def test_a_full_disk_takes_a_prefix_and_hands_out_the_rest(
    small_disk: Path, rounds: int, dice: Random
) -> None:
    for number in range(2 * rounds):
        path = small_disk / f"{number}.db"
        log = EventLog.open(path)
        events = [
            NewEvent("t", {"n": n, "text": Text(dice.randbytes(900).hex())}) for n in range(800)
        ]
        tickets = [log.submit(Append("s", [event])) for event in events]
        with pytest.raises(WriteFailedError):
            log.flush().result()
        written = [ticket for ticket in tickets if not refused(ticket)]
        log.close()
        rest = log.unwritten()
        assert len(written) + len(rest) == len(events)
        assert [append.events[0].id for append in rest] == [e.id for e in events[len(written) :]]

        subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
        assert numbers(path) == list(range(len(written)))
        with EventLog.open(path) as again:
            for append in rest:
                again.submit(append)
        assert numbers(path) == list(range(800))
        for file in small_disk.glob("*.db*"):
            if file.is_file():
                file.unlink()
        subprocess.run(["mount", "-o", "remount,size=1m", str(small_disk)], check=True)


def refused(ticket: Ticket[Any]) -> bool:
    try:
        ticket.result()
    except WriteFailedError:
        return True
    return False


def test_a_disk_that_is_read_only(small_disk: Path) -> None:
    """It is read, what is missing is not created, and writing says what is wrong."""
    path = small_disk / "log.db"
    with EventLog.open(path) as log:
        log.append("s", [NewEvent("t", {"n": 1})])
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    reader = open_reader(path)
    assert reader.execute("SELECT count(*) FROM event_log").fetchone()[0] == 1
    reader.close()
    with pytest.raises(OpenError, match="read-only"):
        EventLog.open(path)
    with pytest.raises(OpenError, match=r"(?i)read-only"):
        EventLog.open(small_disk / "new.db")
    with pytest.raises(OpenError, match=r"(?i)read-only"):
        EventLog.open(small_disk / "folder" / "new.db")


def test_a_wal_that_was_cut_off_loses_its_end_and_no_more(
    database: Path, rounds: int, dice: Random
) -> None:
    wal = leave_a_wal(database)
    whole, logged = database.read_bytes(), wal.read_bytes()
    last = 0
    for length in sorted(dice.randrange(len(logged)) for _ in range(10 * rounds)):
        database.write_bytes(whole)
        wal.write_bytes(logged[:length])
        kept = numbers(database)
        assert kept == list(range(len(kept)))
        assert len(kept) >= last
        last = len(kept)
    database.write_bytes(whole)
    wal.write_bytes(logged)
    assert numbers(database) == list(range(200))


def test_a_wal_with_a_flipped_bit_loses_its_end_and_no_more(
    database: Path, rounds: int, dice: Random
) -> None:
    wal = leave_a_wal(database)
    whole, logged = database.read_bytes(), wal.read_bytes()
    for _ in range(10 * rounds):
        damaged = bytearray(logged)
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        database.write_bytes(whole)
        wal.write_bytes(damaged)
        kept = numbers(database)
        assert kept == list(range(len(kept)))


def cut_off(content: bytes, dice: Random) -> bytes:
    return content[: dice.randrange(len(content))]


def overwritten(content: bytes, dice: Random) -> bytes:
    start = dice.randrange(len(content))
    return content[:start] + dice.randbytes(dice.choice((1, 50, 5_000))) + content[start:]


def zeroed(content: bytes, dice: Random) -> bytes:
    start = dice.randrange(len(content))
    size = dice.choice((1, 512, 4_096))
    return content[:start] + bytes(size) + content[start + size :]


@pytest.mark.parametrize("damage", [cut_off, overwritten, zeroed])
def test_a_damaged_file_is_reported_or_does_not_matter(
    database: Path, rounds: int, dice: Random, damage: Callable[[bytes, Random], bytes]
) -> None:
    """An error that says so, a verification that fails, or every event as it was."""
    with EventLog.open(database) as log:
        for n in range(100):
            log.append("s", [NewEvent("t", {"n": n, "text": Text(f"{n} " * 50)})])
        written = [(event.id, event.data, event.hash) for event in log.read()]
        bodies = {ref: log.text(ref) for ref in (event[1]["text"]["$ref"] for event in written)}
    original = database.read_bytes()
    for _ in range(20 * rounds):
        database.write_bytes(damage(original, dice))
        try:
            with EventLog.open(database) as log:
                if not verify_file(log.path).ok:
                    continue
                assert [(event.id, event.data, event.hash) for event in log.read()] == written
                assert {ref: log.text(ref) for ref in bodies} == bodies
        except OpenError:
            continue
