"""Several processes on one file, and processes that end badly."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm_store import Append, EventLog, NewEvent, Text
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
    path = tmp_path_factory.mktemp("writers") / "log.db"

    def write(writer: int) -> None:
        with EventLog.open(path) as log:
            for number, stream in enumerate(plans[writer]):
                log.append(stream, [NewEvent("t", {"writer": writer, "number": number})])

    with ThreadPoolExecutor(len(plans)) as threads:
        list(threads.map(write, range(len(plans))))
    with EventLog.open(path) as log:
        events = list(log.read())
        for writer, plan in enumerate(plans):
            own = [(e.data["number"], e.stream) for e in events if e.data["writer"] == writer]
            assert own == list(enumerate(plan))
        for stream in "ab":
            versions = [event.version for event in events if event.stream == stream]
            assert versions == list(range(1, len(versions) + 1))
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
