"""`kindlm baseline compare`: a run beside the baseline, test by test."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from kindlm.cli.baselines import named_run, suites_of
from kindlm.cli.console import fail, note, show, wants_color, warn
from kindlm.cli.history import open_history, or_fail
from kindlm.history.baselines import (
    Baseline,
    active_baseline,
    corruption,
    labelled_baseline,
    no_baseline,
)
from kindlm.history.comparison import (
    Change,
    TestComparison,
    TestResult,
    compare_tests,
    results_of,
)
from kindlm.history.run_view import RunView
from kindlm.reports.figures import percent
from kindlm.reports.page import Page, Part
from kindlm.reports.registry import ReportOptions
from kindlm.reports.untrusted import one_line

__all__ = ["compare_with_baseline"]

_SIGNS: dict[Change, Part] = {
    Change.REGRESSED: ("✗", "red"),
    Change.REMOVED: ("✗", "red"),
    Change.IMPROVED: ("↑", "green"),
    Change.ADDED: ("+", "green"),
    Change.UNCHANGED: ("=", "dim"),
    Change.NOT_RUN: ("-", "dim"),
}


def compare_with_baseline(
    database: Path | None, wanted: str | None, suite: str | None, label: str | None, out: TextIO
) -> bool:
    """Write how the tests of a run did against the baseline; return whether none got worse."""
    with open_history(database) as db:
        run = or_fail(named_run(db, wanted, suite))
        view = RunView(db, run)
        page = Page(out, _options(out))
        if view.info.ended != "finished":
            warn(f"The run {run} is {view.status}: what it did not come to counts as not run.")
        ok = _tell_unloaded(view, suite)
        suites = or_fail(suites_of(db, run, suite))
        baselines = {key: _baseline(db, *key, label) for key in suites}
        if not any(baselines.values()):
            fail(no_baseline(name) for _, name in suites)
        for (_, name), baseline in baselines.items():
            if baseline is None:
                note(f"{name}: no baseline.")
            else:
                ok = _compare(db, run, baseline, page) and ok
        return ok


def _baseline(
    db: sqlite3.Connection, project: str, suite: str, label: str | None
) -> Baseline | None:
    if label is None:
        return active_baseline(db, project, suite)
    return labelled_baseline(db, project, suite, label)


def _tell_unloaded(view: RunView, suite: str | None) -> bool:
    """Show the suites that could not be loaded; return whether there are none."""
    unloaded = [
        row for row in view.suites if row.error_code is not None and suite in (None, row.name)
    ]
    for row in unloaded:
        warn(f"{row.name}: the suite could not be loaded in run {view.id}.")
    return not unloaded


def _compare(db: sqlite3.Connection, run: str, baseline: Baseline, page: Page) -> bool:
    problem = corruption(db, baseline.run, baseline.suite)
    if problem is not None:
        show([problem])
        return False
    compared = compare_tests(
        results_of(db, baseline.run, baseline.suite), results_of(db, run, baseline.suite)
    )
    label = f" ({one_line(baseline.label)})" if baseline.label else ""
    page.line(
        (one_line(baseline.suite), "bold"), f"  baseline {baseline.run}{label} → run {run}", hang=2
    )
    if baseline.run == run:
        page.line("The run is the baseline itself.", indent=2)
    for test in compared:
        _write(test, page)
    counts = Counter(test.change for test in compared)
    tally = ", ".join(f"{counts[change]} {change}" for change in Change if counts[change])
    page.line(tally or "no tests", indent=2)
    return not any(test.fails for test in compared)


def _write(test: TestComparison, page: Page) -> None:
    remarks = "".join(f", {remark}" for remark in _remarks(test))
    page.line(
        _SIGNS[test.change],
        f" {one_line(test.test.name)} · {one_line(test.test.target)}",
        f"  {test.change}: {_figures(test)}{remarks}",
        indent=2,
        hang=2,
    )


def _figures(test: TestComparison) -> str:
    before, after = _figure(test.before), _figure(test.after)
    return before if before == after else f"{before} → {after}"


def _figure(result: TestResult | None) -> str:
    if result is None:
        return "not defined"
    if result.pass_rate is None:
        return "not run"
    return f"{result.status} {percent(result.pass_rate)} of {result.repeats}"


def _remarks(test: TestComparison) -> Iterator[str]:
    if test.new_failure_codes:
        yield f"new: {', '.join(test.new_failure_codes)}"
    if test.output_changed:
        yield "the output is another one"


def _options(out: TextIO) -> ReportOptions:
    return ReportOptions(color=wants_color(out), width=shutil.get_terminal_size().columns)
