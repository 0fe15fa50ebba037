"""Recovery files: files beside the history with the events that it lacks."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from kindlm.recording.unwritten import find_unwritten
from kindlm_store.salvage import scratch_log


@pytest.fixture
def found(tmp_path: Path):
    """Return a function that puts a file beside a history and returns what is found of a run."""

    def found(line: bytes, version: int = 0) -> Path | None:
        (tmp_path / "unwritten-r-1.jsonl").write_bytes(line)
        with closing(scratch_log(":memory:")) as log:
            if version:
                run = "INSERT INTO streams (name, version, head, sealed) VALUES ('run/r', ?, '', 0)"
                log.execute(run, (version,))
            return find_unwritten(tmp_path / "kindlm.db", "r", log)

    return found


def test_a_file_that_continues_a_run_is_found(found, tmp_path: Path) -> None:
    assert found(b'{"streams": {"run/r": {"events": 2}}}\n') == tmp_path / "unwritten-r-1.jsonl"


def test_a_file_continues_a_run_only_after_the_last_event_of_the_history(found) -> None:
    line = b'{"streams": {"run/r": {"events": 9, "after": 7}}}\n'
    assert found(line, 7) is not None
    assert found(line, 8) is None
    assert found(b'{"streams": {"run/r": {"events": 9}}}\n', 7) is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no JSON",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b'{"streams": []}',
        b'{"streams": {"run/r": []}}',
        b'{"streams": {"run/other": {"events": 2}}}',
        b'{"streams": {"run/r": {"after": 7}}}',
    ],
)
def test_any_other_file_is_left_alone(found, line: bytes) -> None:
    assert found(line) is None
