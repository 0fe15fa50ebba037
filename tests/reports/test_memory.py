"""Reports of large runs: what is in memory does not grow with the number of tests."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from rich.cells import cell_len

from kindlm.errors import Ok
from kindlm.history.run_view import RunView
from kindlm.reports.registry import ReportOptions, find_report


class Sink(io.TextIOBase):
    """Counts what is written and forgets it."""

    written = 0

    def write(self, text: str) -> int:
        self.written += len(text)
        return len(text)


@pytest.fixture
def runs(history: Any, make: Any) -> list[RunView]:
    """A run of 30 tests and one of 300, both with texts, tools and failures in each test."""
    views = []
    for tests in (30, 300):
        run = history.run(f"run{tests}")
        run.suite(tests=[make.planned(f"test {i}") for i in range(tests)])
        for i in range(tests):
            run.execution(
                f"test {i}",
                output=f"{i} " + "words " * 100,
                tools=(("lookup", {"id": i}, {"text": "answer " * 50}),),
                assertions=(make.passed(), make.failed(message=f"Not {i}.", actual="x" * 500)),
            )
        views.append(run.finish())
    return views


@pytest.fixture
def traced(runs: list[RunView]) -> Iterator[None]:
    """Trace memory, with a cache of rich's (widths of 4,096 texts) full from the start."""
    tracemalloc.start()
    for number in range(5000):
        cell_len(f"{number} " + "x" * 100)
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("name", ["terminal", "json", "junit"])
def test_memory_is_flat(history: Any, runs: list[RunView], name: str) -> None:
    report = find_report(name)
    assert isinstance(report, Ok)
    options = ReportOptions(verbose=True)
    report.value.write(runs[0], Sink(), options)  # what is imported and cached once
    peaks = []
    for run in runs:
        view, sink = history.view(run.id), Sink()
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        report.value.write(view, sink, options)
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
        assert sink.written > 100 * view.summary.tests.total

    assert peaks[1] < 2 * peaks[0] + 50_000, peaks
