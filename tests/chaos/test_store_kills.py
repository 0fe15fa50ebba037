"""Processes that are killed while they write or rebuild: nothing acknowledged is ever missing."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from random import Random

from kindlm_store import EventLog, NewEvent, Projection
from kindlm_store.verification import verify_file

PROJECTION = """
from kindlm_store import *
COUNTS = Projection(
    "counts", 1,
    "CREATE TABLE counts (stream TEXT, n INTEGER, PRIMARY KEY (stream))\\n"
    "ON t:\\nINSERT INTO counts SELECT stream, count(*) FROM new_events WHERE true GROUP BY 1"
    " ON CONFLICT (stream) DO UPDATE SET n = n + excluded.n",
)
"""

KILL_ITSELF = """
import os, signal, sys

def die_after(log, steps):
    # SQLite asks after so many of its steps, in the midst of a statement.
    def arm(connection):
        connection.set_progress_handler(lambda: os.kill(os.getpid(), signal.SIGKILL), steps)
    log._writer.put(run=arm).result()
"""

APPEND = (
    PROJECTION
    + KILL_ITSELF
    + """
path, name, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
told = open(sys.argv[4], "w")
with EventLog.open(path, projections=[COUNTS]) as log:
    if steps:
        die_after(log, steps)
    number = 0
    while True:
        sent = []
        for _ in range(50):
            number += 1
            data = {"n": number, "text": Text(f"{name} {number} " + "x" * 500)}
            events = [NewEvent("t", data) for _ in range(3)]
            sent.append((events, log.submit(Append(name, events))))
        for events, ticket in sent:
            ticket.result()
            for event in events:
                print(event.id, name, event.data["n"], file=told)
        told.flush()
        if number == 50:
            print("ready", flush=True)
"""
)

REBUILD = (
    PROJECTION
    + KILL_ITSELF
    + """
with EventLog.open(sys.argv[1], projections=[COUNTS]) as log:
    die_after(log, int(sys.argv[2]))
    log.rebuild()
"""
)

COUNTS = Projection(
    "counts",
    1,
    "CREATE TABLE counts (stream TEXT, n INTEGER, PRIMARY KEY (stream))\n"
    "ON t:\nINSERT INTO counts SELECT stream, count(*) FROM new_events WHERE true GROUP BY 1"
    " ON CONFLICT (stream) DO UPDATE SET n = n + excluded.n",
)


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> None:
    _, err = process.communicate(timeout=60)
    assert "Error" not in err, err


def acknowledgements(told: Path) -> dict[str, list[str]]:
    """What a process that was killed had acknowledged; its last line may have been cut off."""
    *lines, _ = told.read_text("utf-8").split("\n")
    return {line.split()[0]: line.split() for line in lines}


def assert_whole(path: Path, acknowledged: dict[str, list[str]]) -> None:
    with EventLog.open(path, projections=[COUNTS]) as log:
        stored = {str(e.id): [str(e.id), e.stream, str(e.data.get("n"))] for e in log.read()}
        assert {id_: stored.get(id_) for id_ in acknowledged} == acknowledged
        assert verify_file(log.path).ok
        assert log.projection_errors() == {}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        counted = dict(connection.execute("SELECT stream, n FROM counts"))
        there = dict(connection.execute("SELECT stream, count(*) FROM event_log GROUP BY 1"))
        assert counted == there
        shadows = "SELECT name FROM sqlite_master WHERE name LIKE '%shadow%'"
        assert connection.execute(shadows).fetchall() == []


def test_killed_in_the_midst_of_statements(database: Path, rounds: int, dice: Random) -> None:
    acknowledged: dict[str, list[str]] = {}
    for attempt in range(2 * rounds):
        # From the first statement of the first group to some groups later.
        steps = int(10 ** dice.uniform(1, 5)) if attempt else 100_000
        told = database.with_name(f"told-{attempt}")
        process = start(APPEND, database, f"own/{attempt}", steps, told)
        ended(process)
        acknowledged |= acknowledgements(told)
        assert process.returncode == -9
        assert_whole(database, acknowledged)
    assert acknowledged


def test_several_killed_at_any_moment(database: Path, rounds: int, dice: Random) -> None:
    """One dies after the other, each at a moment of chance, while the rest goes on."""
    acknowledged: dict[str, list[str]] = {}
    for attempt in range(rounds):
        told = [database.with_name(f"told-{attempt}-{n}") for n in range(3)]
        writers = [start(APPEND, database, file.name, 0, file) for file in told]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            # No wait for anything: the moment itself is left to chance.
            time.sleep(dice.uniform(0, 0.02))
            writer.kill()
        for writer, file in zip(writers, told, strict=True):
            ended(writer)
            acknowledged |= acknowledgements(file)
        assert_whole(database, acknowledged)
    assert len(acknowledged) > 100


def test_killed_inside_a_rebuild(database: Path, rounds: int, dice: Random) -> None:
    """The old tables stay, and nothing is left of the new ones."""
    with EventLog.open(database, projections=[COUNTS]) as log:
        log.append("s", [NewEvent("t", {}) for _ in range(1_000)])
    for _ in range(2 * rounds):
        process = start(REBUILD, database, int(10 ** dice.uniform(2, 4.4)))
        process.communicate(timeout=60)
        with closing(sqlite3.connect(database)) as connection:
            assert connection.execute("SELECT n FROM counts").fetchall() == [(1_000,)]
        assert_whole(database, {})


def test_three_processes_on_one_file(database: Path, rounds: int) -> None:
    """Each writes to a stream of its own and to one that all share; no file was there before."""
    code = PROJECTION + (
        "import sys\n"
        "path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])\n"
        "with EventLog.open(path, projections=[COUNTS]) as log:\n"
        "    for number in range(count):\n"
        "        for stream in (name, 'shared'):\n"
        "            log.submit(Append(stream, [NewEvent('t', {'n': number, 'by': name})]))\n"
    )
    count = 100 * rounds
    writers = [start(code, database, f"own/{n}", count) for n in range(3)]
    assert [writer.communicate(timeout=280)[1] for writer in writers] == [""] * 3
    with EventLog.open(database, projections=[COUNTS]) as log:
        order: dict[str, list[int]] = {}
        for event in log.read(stream="shared"):
            order.setdefault(event.data["by"], []).append(event.data["n"])
        assert order == {f"own/{n}": list(range(count)) for n in range(3)}
    assert_whole(database, {})
