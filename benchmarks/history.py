"""Reading a long history: with commands, and within a process."""

from __future__ import annotations

import io
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.figures import Figure, Sizes
from benchmarks.processes import in_process, kindlm

_RUNS = 1_000
_EXECUTIONS_SHOWN = 1_000
"""The executions of the newest run, which is shown."""


def history(sizes: Sizes) -> Iterator[Figure]:
    """Yield the time of commands and queries on a history of a thousand runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = in_process("history.record", folder=name, events=sizes.events)
        database = folder / ".kindlm" / "kindlm.db"
        yield Figure(f"size, {made:,} events", [database.stat().st_size], "bytes")
        for what, *command in (
            ("kindlm runs", "runs"),
            ("kindlm show", "show", "latest"),
            ("kindlm show, an execution", "show", "latest", "1"),
        ):
            kindlm(*command, folder=folder)
            walls = [kindlm(*command, folder=folder).wall_s for _ in range(sizes.runs)]
            yield Figure(what, walls, "s", "at most 0.3 s" if what == "kindlm runs" else "")
        times = in_process("history.read", folder=name, runs=sizes.runs)
        for what, milliseconds in times.items():
            yield Figure(what, milliseconds, "ms", "at most 100 ms")


def record(folder: str, events: int) -> int:
    """Record a history of about `events` events; return their exact number."""
    from benchmarks.recorded import EVENTS_PER_EXECUTION, record_history

    executions = events // EVENTS_PER_EXECUTION
    runs = min(_RUNS, max(executions // 10, 2))
    latest = min(_EXECUTIONS_SHOWN, executions // 2)
    each = max((executions - latest) // (runs - 1), 1)
    database = Path(folder) / ".kindlm" / "kindlm.db"
    return record_history(database, runs=runs, tests=each, latest_tests=latest)


def read(folder: str, runs: int) -> dict[str, list[float]]:
    """Return the milliseconds of each query, on a new connection each time."""
    from kindlm_store import open_reader

    times: dict[str, list[float]] = {}
    for what, query in _queries().items():
        for warming in (True, *[False] * runs):
            began = time.perf_counter()
            with closing(open_reader(Path(folder) / ".kindlm" / "kindlm.db")) as reader:
                query(reader)
            if not warming:
                times.setdefault(what, []).append((time.perf_counter() - began) * 1_000)
    return times


def _queries() -> dict[str, Callable[[sqlite3.Connection], object]]:
    from kindlm.errors import Ok
    from kindlm.history.run_names import find_run, latest_finished
    from kindlm.history.run_view import RunView
    from kindlm.history.runs import RunFilter, runs
    from kindlm.reports.report_registry import ReportOptions
    from kindlm.reports.terminal.execution_text import render_execution

    def latest(reader: sqlite3.Connection) -> RunView:
        found = find_run(reader, "latest")
        assert isinstance(found, Ok)
        return RunView(reader, found.value)

    def execution_page(reader: sqlite3.Connection) -> None:
        view = latest(reader)
        execution = view.execution("1")
        assert execution is not None
        render_execution(view, execution, io.StringIO(), ReportOptions(verbose=True))

    def totals(reader: sqlite3.Connection) -> None:
        view = latest(reader)
        assert view.summary.executions.total
        assert view.passed in (True, False)

    return {
        "list of runs": lambda reader: list(runs(reader, RunFilter(limit=100))),
        "newest run of a suite": lambda reader: latest_finished(reader, "support 1"),
        "totals and verdict of a run": totals,
        "page of an execution": execution_page,
    }
