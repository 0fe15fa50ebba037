"""Several processes on one file, and processes that end badly."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm_store import Append, ConflictError, EventLog, NewEvent, Text

PROJECTION = """
from kindlm_store import *
COUNTS = Projection(
    "counts", 1,
    "CREATE TABLE counts (stream TEXT, n INTEGER, PRIMARY KEY (stream))",
    (on("t", "INSERT INTO counts SELECT stream, count(*) FROM new_events WHERE true GROUP BY 1"
             " ON CONFLICT (stream) DO UPDATE SET n = n + excluded.n"),),
)
"""

APPEND_AND_PRINT = (
    PROJECTION
    + """
import sys
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with EventLog.open(path, projections=[COUNTS]) as log:
    number = 0
    while number < count:
        pairs = []
        for stream in (name, "shared"):
            events = [NewEvent("t", {"n": number, "text": Text(f"{name} {number}")})]
            pairs.append((stream, events[0], log.submit(Append(stream, events))))
            number += 1
        for stream, event, ticket in pairs:
            ticket.result()
            print(event.id, stream, event.data["n"], flush=True)
"""
)


def start(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", APPEND_AND_PRINT, str(path), name, str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def assert_counted(path: Path) -> None:
    """The projection agrees with the log."""
    with closing(sqlite3.connect(path)) as connection:
        counted = dict(connection.execute("SELECT stream, n FROM counts"))
        there = dict(connection.execute("SELECT stream, count(*) FROM event_log GROUP BY 1"))
    assert counted == there


def test_eight_processes_append_to_a_file_that_did_not_exist(path: Path) -> None:
    processes = [start(path, f"own/{n}", 100) for n in range(8)]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * 8, outputs
    acknowledged = [line.split() for out, _ in outputs for line in out.splitlines()]
    with EventLog.open(path) as log:
        stored = {str(e.id): [str(e.id), e.stream, str(e.data["n"])] for e in log.read()}
        assert len(stored) == len(acknowledged) == 800
        assert all(stored[line[0]] == line for line in acknowledged)
        assert [e.version for e in log.read(stream="shared")] == list(range(1, 401))
        assert log.verify().ok
    assert_counted(path)


def test_what_was_acknowledged_survives_kill_9(path: Path) -> None:
    """Killed again and again at moments of its choice, the file is whole and misses nothing."""
    acknowledged: dict[str, list[str]] = {}
    for attempt in range(10):
        with start(path, "own", 1_000_000) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(1 + attempt * 37)]
            process.kill()
            lines += process.stdout.readlines()
        whole = [line.split() for line in lines if line.endswith("\n")]
        acknowledged.update((line[0], line) for line in whole)
        with EventLog.open(path) as log:
            stored = {str(e.id): [str(e.id), e.stream, str(e.data["n"])] for e in log.read()}
            missed = [key for key, line in acknowledged.items() if stored.get(key) != line]
            assert not missed
            assert log.verify().ok
        assert_counted(path)


@examples(15)
@given(
    plans=st.lists(
        st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=25), min_size=2, max_size=3
    )
)
def test_two_writers_never_lose_or_duplicate_a_version(
    tmp_path_factory: pytest.TempPathFactory, plans: list[list[str]]
) -> None:
    """Each writer reads the head and appends there; who comes too late tries again."""
    path = tmp_path_factory.mktemp("writers") / "log.db"

    def write(plan: list[str]) -> list[tuple[str, int]]:
        done = []
        with EventLog.open(path) as log:
            for stream in plan:
                while True:
                    head = log.head(stream)
                    version = head.version if head else 0
                    try:
                        log.append(stream, [NewEvent("t", {})], expected_version=version)
                    except ConflictError:
                        continue
                    done.append((stream, version + 1))
                    break
        return done

    with ThreadPoolExecutor(len(plans)) as threads:
        written = [entry for part in threads.map(write, plans) for entry in part]
    expected = Counter(stream for plan in plans for stream in plan)
    assert sorted(written) == sorted(
        (stream, version) for stream, n in expected.items() for version in range(1, n + 1)
    )
    with EventLog.open(path) as log:
        assert log.verify().ok


def test_a_writer_waits_for_another_as_long_as_it_takes(path: Path) -> None:
    with (
        EventLog.open(path) as log,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        tickets = [log.submit(Append("s", [NewEvent("t", {"x": Text("y")})])) for _ in range(5)]
        with pytest.raises(TimeoutError):
            tickets[0].result(timeout=0.2)
        other.execute("COMMIT")
        for ticket in tickets:
            ticket.result()
        assert [event.version for event in log.read()] == [1, 2, 3, 4, 5]


def test_a_reader_that_stays_does_not_stop_closing(path: Path) -> None:
    log = EventLog.open(path)
    log.append("s", [NewEvent("t", {})])
    with closing(log.reader()) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM event_log").fetchone()[0] == 1
        log.append("s", [NewEvent("t", {})])
        log.close()
        assert reader.execute("SELECT count(*) FROM event_log").fetchone()[0] == 1
    with EventLog.open(path) as log:
        assert len(list(log.read())) == 2


def test_a_program_that_forgets_to_close_loses_nothing(path: Path) -> None:
    code = (
        "import sys\nfrom kindlm_store import *\n"
        "log = EventLog.open(sys.argv[1])\n"
        "for n in range(1000): log.submit(Append('s', [NewEvent('t', {'n': n})]))\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    with EventLog.open(path) as log:
        assert [event.data["n"] for event in log.read()] == list(range(1000))


REBUILD = (
    PROJECTION
    + """
import sys, os
with EventLog.open(sys.argv[1], projections=[COUNTS]) as log:
    print("open", flush=True)
    log.rebuild(progress=lambda done, total: print(done, flush=True))
"""
)


def test_a_rebuild_killed_at_any_step_leaves_whole_tables(path: Path) -> None:
    with EventLog.open(path) as log:
        log.append("s", [NewEvent("t", {}) for _ in range(22_000)])
    for lines in (0, 1, 2, 4, 6):
        with subprocess.Popen(
            [sys.executable, "-c", REBUILD, str(path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for _ in range(lines):
                process.stdout.readline()
            process.kill()
        if lines:
            assert_counted(path)
    done = subprocess.run(
        [sys.executable, "-c", REBUILD, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == "22000"
    assert_counted(path)
    with closing(sqlite3.connect(path)) as connection:
        left = connection.execute("SELECT name FROM sqlite_master WHERE name LIKE '%shadow%'")
        assert left.fetchall() == []
