"""Reports of large runs: what is in memory does not grow with the number of tests."""

from __future__ import annotations

import gc
import io
import tracemalloc
from collections.abc import Iterator

import pytest
from recorded_history import History, Make
from rich.cells import cached_cell_len

from kindlm.errors import Ok
from kindlm.reports.report_registry import ReportOptions, find_report

TESTS = (20, 110)
"""A report of more than 100 tests does not say what changed since an earlier run."""


class Sink(io.TextIOBase):
    """Counts what is written and forgets it, and with it what rich remembers: widths of texts."""

    written = 0

    def write(self, text: str) -> int:
        self.written += len(text)
        cached_cell_len.cache_clear()
        return len(text)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """A short run and a long one, with texts, tools and failures in each test."""
    history = History(tmp_path_factory.mktemp("runs") / "kindlm.db")
    for tests in TESTS:
        run = history.run(f"run{tests}")
        run.suite(tests=[Make.planned(f"test {i}") for i in range(tests)])
        for i in range(tests):
            run.execution(
                f"test {i}",
                output=f"{i} " + "words " * 100,
                tools=(("lookup", {"id": i}, {"text": "answer " * 50}),),
                assertions=(Make.passed(), Make.failed(message=f"Not {i}.", actual="x" * 500)),
            )
        run.finish()
    yield history
    history.close()


@pytest.fixture(autouse=True)
def _only_new_objects_count() -> Iterator[None]:
    """Full collections come the later the more there is: what the tests before left must not."""
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize("name", ["terminal", "json", "junit"])
def test_memory_is_flat(recorded: History, name: str) -> None:
    report = find_report(name)
    assert isinstance(report, Ok)
    options = ReportOptions(verbose=True)
    few, many = (f"run{tests}" for tests in TESTS)
    report.value.write(recorded.view(few), Sink(), options)  # what is imported and cached once
    peaks: dict[str, list[int]] = {few: [], many: []}
    for run in (few, many, few, many):
        view, sink = recorded.view(run), Sink()
        tracemalloc.start()
        report.value.write(view, sink, options)
        peaks[run].append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert sink.written > 100 * view.summary.tests.total

    # Threads that tests before left may allocate meanwhile.
    assert min(peaks[many]) < 1.5 * min(peaks[few]) + 35_000, peaks
