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
from kindlm_store.verification import verify_file


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
        assert verify_file(log.path).ok


def test_a_writer_waits_for_another_as_long_as_it_takes_and_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kindlm_store.database._SILENT_S", 0.05)
    with (
        EventLog.open(path) as log,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        tickets = [log.submit(Append("s", [NewEvent("t", {"x": Text("y")})])) for _ in range(5)]
        with pytest.raises(TimeoutError):
            tickets[0].result(timeout=0.2)
        waits = f"Waiting for another program, which has locked {path} for writing."
        assert caplog.messages == [waits]
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
