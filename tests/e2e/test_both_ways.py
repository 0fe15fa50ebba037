"""A process that has loaded kindlm before it is forked does what one does that has to load it."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from orders import hold, order, serve_orders, write_orders
from workspace import Workspace, new_workspace, signal_twice

COMMANDS = (
    ("test", "--label", "first", "--no-progress"),  # Its lines depend on time.
    ("show", "first", "1"),
)
TABLES = {
    "runs": "label, mode, ended, passed",
    "executions": "number, test, target, repeat, status, attempt",
    "assertions": "position, kind, label, outcome",
    "event_log": "version, type, subject",
}


@pytest.fixture
def anew(tmp_path: Path) -> Workspace:
    return _new(tmp_path / "anew")


@pytest.fixture
def forked(tmp_path: Path) -> Workspace:
    return _new(tmp_path / "forked")


def _new(folder: Path) -> Workspace:
    folder.mkdir()
    return new_workspace(folder)


def test_commands_end_alike_say_the_same_and_record_the_same(
    anew: Workspace, forked: Workspace
) -> None:
    with serve_orders() as server:
        tests = [order("k0"), order("k1", says="nowhere")]
        write_orders(anew, server, tests, defaults={"concurrency": 1})
        write_orders(forked, server, tests, defaults={"concurrency": 1})
        codes = set()
        for command in COMMANDS:
            process = anew.start_anew(*command)
            told = process.communicate(timeout=60)
            done = forked.run_apart(*command)
            assert process.returncode == done.returncode, command
            assert _plain(anew, *told) == _plain(forked, done.stdout, done.stderr), command
            codes.add(done.returncode)
    assert codes == {0, 1}
    for table, columns in TABLES.items():
        query = f"SELECT {columns} FROM {table} ORDER BY 1, 2, 3"
        rows = _without_ids(anew, repr(anew.query(query)))
        assert rows == _without_ids(forked, repr(forked.query(query))), table
        assert rows != "[]", table


def test_ctrl_c_ends_both(anew: Workspace, forked: Workspace) -> None:
    ends = []
    with serve_orders() as server:
        for workspace in (anew, forked):
            write_orders(workspace, server, 3)
            held = hold(server, "k1")
            start = workspace.start_anew if workspace is anew else workspace.start
            process: Any = start("test", "-j", "1", "--no-progress")
            held()
            assert process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=0.01)
            signal_twice(process, signal.SIGINT)
            told = process.communicate(timeout=60)
            ends.append((process.returncode, *_plain(workspace, *told)))
    assert ends[0] == ends[1]
    assert ends[0][0] == 1


def _plain(workspace: Workspace, *texts: str) -> list[str]:
    """Return what was said without ids, times and hashes, which are others each time."""
    hashes_or_numbers = re.compile(r"\s+|[0-9a-f]{12,}|[+-]?[0-9][0-9,]*(\.[0-9]+)?( ?(ms|s)\b)?")
    return [hashes_or_numbers.sub("N", _without_ids(workspace, text)) for text in texts]


def _without_ids(workspace: Workspace, text: str) -> str:
    text = text.replace(str(workspace.root), "ROOT")
    if workspace.database.exists():
        for (run,) in workspace.query("SELECT id FROM runs ORDER BY started_at"):
            text = text.replace(str(run), "RUN")
    return text
