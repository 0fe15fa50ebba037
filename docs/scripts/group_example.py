"""Records two shards of a run, of which one fails: the worked example of shards.md."""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "shared"))

from recorded_history import History, Make

from kindlm.errors import Ok
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.terminal_report import write_report

_GROUP = "nightly-42"
_TESTS = ("refund", "greeting", "track-order", "cancel-order")
_SHARDS = {"k3f9x2ab": 1, "m7q2w8rt": 2}
_WHEN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
_COMMIT = re.compile(r" · main@\w+ with changes")


def group_example() -> str:
    """Return what `kindlm show nightly-42` prints."""
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / "kindlm.db")
        for run, index in _SHARDS.items():
            _record(history, run, index)
        db = history.reader()
        found = find_run_or_group(db, _GROUP)
        assert isinstance(found, Ok)
        out = io.StringIO()
        write_report(RunView(db, found.value), out, ReportOptions(width=92))
        history.close()
    return _COMMIT.sub("", _WHEN.sub("2026-11-21 09:00 UTC", out.getvalue()))


def _record(history: History, run: str, index: int) -> None:
    count = len(_SHARDS)
    writer = history.run(run, group=_GROUP, shard=f"{index}/{count}")
    mine = [test for number, test in enumerate(_TESTS) if number % count == index - 1]
    # Each shard spends less than the gate allows.
    writer.suite(
        tests=[Make.planned(test, selected=test in mine) for test in _TESTS],
        gates={"costMaxUsd": 0.003},
    )
    for test in mine:
        writer.execution(test, assertions=(Make.passed(),))
    writer.finish()
