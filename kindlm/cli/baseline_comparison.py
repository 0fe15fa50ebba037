"""`kindlm baseline compare`: a run beside the baseline, test by test.

What it calls a regression is what `kindlm diff` of the two runs calls one.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from kindlm.cli.baseline_comparison_json import ComparedTest, SuiteComparison, comparison_json
from kindlm.cli.baselines import named_run, suites_of
from kindlm.cli.console import fail, note, show, wants_color, warn
from kindlm.cli.history import existing_history, open_history, or_fail
from kindlm.cli.options import ListFormat
from kindlm.history.baselines import (
    Baseline,
    BaselineChecks,
    active_baseline,
    labelled_baseline,
    no_baseline,
    output_of,
)
from kindlm.history.diff.run_diff import DiffOptions, RunDiff
from kindlm.history.evidence.values import Change, Side, Strength
from kindlm.history.run_view import RunView
from kindlm.recording.project import regression_threshold
from kindlm.reports.diff.parts import check_name, check_text
from kindlm.reports.diff.text import (
    attempts_text,
    completing_command,
    lacking_text,
    not_comparable_text,
)
from kindlm.reports.figures import percent
from kindlm.reports.page import Page, Part
from kindlm.reports.registry import ReportOptions
from kindlm.reports.untrusted import one_line

__all__ = ["compare_with_baseline", "compared_tests"]

_SIGNS: dict[Change, Part] = {
    Change.REGRESSED: ("✗", "red"),
    Change.REMOVED: ("✗", "red"),
    Change.IMPROVED: ("↑", "green"),
    Change.ADDED: ("+", "green"),
    Change.UNCHANGED: ("=", "dim"),
    Change.NOT_RUN: ("-", "dim"),
}


def compare_with_baseline(
    database: Path | None,
    wanted: str | None,
    suite: str | None,
    label: str | None,
    form: ListFormat,
    out: TextIO,
) -> bool:
    """Write how the tests of a run did against the baseline; return whether none got worse."""
    with open_history(database) as db:
        run = or_fail(named_run(db, wanted, suite))
        view = RunView(db, run)
        whole = view.is_whole(suite)
        if not whole:
            warn(
                f"INCOMPLETE: {lacking_text(view)}. What it did not come to counts as not run,"
                f" and the comparison fails. Next: {completing_command(view)}"
            )
        unloaded = _tell_unloaded(view, suite)
        suites = or_fail(suites_of(db, run, suite))
        comparer = _Comparer(db, view, label, _options_of_diff(database))
        compared = [comparer.compare(*key) for key in suites]
    if all(one.baseline is None for one in compared):
        fail(no_baseline(name) for _, name in suites)
    fails = not whole or bool(unloaded) or any(one.fails for one in compared)
    show([one.problem for one in compared if one.problem is not None])
    if form is ListFormat.JSON:
        out.write(comparison_json(run, compared, unloaded, complete=whole, fails=fails))
    else:
        page = Page(out, _options(out))
        for one in compared:
            _write_suite(run, one, page)
    return not fails


def _tell_unloaded(view: RunView, suite: str | None) -> list[str]:
    """Warn of the suites that could not be loaded; return their names."""
    unloaded = [
        row.name for row in view.suites if row.error_code is not None and suite in (None, row.name)
    ]
    for name in unloaded:
        warn(f"{name}: the suite could not be loaded in run {view.id}.")
    return unloaded


class _Comparer:
    """Compares suites of a run with their baselines; what they have in common is read once."""

    def __init__(
        self, db: sqlite3.Connection, run: RunView, label: str | None, options: DiffOptions
    ) -> None:
        self._db = db
        self._run = run
        self._label = label
        self._options = options
        self._checks = BaselineChecks(db)
        self._diffs: dict[str, RunDiff] = {}

    def compare(self, project: str, suite: str) -> SuiteComparison:
        baseline = self._baseline(project, suite)
        if baseline is None:
            return SuiteComparison(suite, None)
        problem = self._checks.corruption(baseline.run, suite)
        if problem is not None:
            return SuiteComparison(suite, baseline, problem)
        diff = self._diff(baseline.run)
        return SuiteComparison(
            suite,
            baseline,
            tests=tuple(compared_tests(self._db, diff, project, suite)),
            run_regressed=diff.evidence.run_regressed,
            not_comparable=not_comparable_text(diff),
            attempts=diff.attempts,
        )

    def _diff(self, baseline: str) -> RunDiff:
        if baseline not in self._diffs:
            same = baseline == self._run.id
            before = self._run if same else RunView(self._db, baseline)
            self._diffs[baseline] = RunDiff(self._db, before, self._run, self._options)
        return self._diffs[baseline]

    def _baseline(self, project: str, suite: str) -> Baseline | None:
        if self._label is None:
            return active_baseline(self._db, project, suite)
        return labelled_baseline(self._db, project, suite, self._label)


def compared_tests(
    db: sqlite3.Connection, diff: RunDiff, project: str, suite: str
) -> Iterator[ComparedTest]:
    """Yield the tests of a suite, in the order of the run, and then what was removed.

    A test that was not tested before either cannot be missed. Of one whose file could not be
    loaded, nobody knows whether it is still defined: it was not run.
    """
    tests = [test for test in diff.tests if (test.key.project, test.key.suite) == (project, suite)]
    for test in tests:
        if test.after is None:
            continue
        change = test.change
        if not test.after.counts.n:
            change = Change.NOT_RUN
        elif not test.compared:
            change = Change.ADDED
        dropped = diff.details(test).checks if test.evidence.dropped_checks else ()
        checks = tuple(check for check in dropped if check.evidence is not None)
        output_changed = False
        if test.compared:
            before, after = (
                output_of(db, run, *test.key[1:]) for run in (diff.before.id, diff.after.id)
            )
            output_changed = before != after
        yield ComparedTest(test, change, test.after, checks, output_changed)
    gone = [test for test in tests if test.after is None]
    for test in sorted(gone, key=lambda test: (test.key.name, test.key.target)):
        if test.change is Change.NOT_RUN:
            yield ComparedTest(test, Change.NOT_RUN, Side())
    for test in gone:
        if test.change is Change.REMOVED and test.before and test.before.counts.n:
            yield ComparedTest(test, Change.REMOVED, None)


def _options_of_diff(database: Path | None) -> DiffOptions:
    return DiffOptions.of_project(or_fail(regression_threshold(existing_history(database).root)))


def _write_suite(run: str, compared: SuiteComparison, page: Page) -> None:
    baseline = compared.baseline
    if baseline is None:
        note(f"{compared.suite}: no baseline.")
    if baseline is None or compared.problem is not None:
        return
    label = f" ({one_line(baseline.label)})" if baseline.label else ""
    page.line(
        (one_line(baseline.suite), "bold"), f"  baseline {baseline.run}{label} → run {run}", hang=2
    )
    if baseline.run == run:
        page.line("The run is the baseline itself.", indent=2)
    if compared.attempts is not None:
        page.line(attempts_text(compared.attempts), indent=2)
    if compared.not_comparable is not None:
        page.line((compared.not_comparable, "yellow"), indent=2)
    for test in compared.tests:
        _write(test, page)
    counts = Counter(test.change for test in compared.tests)
    tally = ", ".join(f"{counts[change]} {change}" for change in Change if counts[change])
    page.line(tally or "no tests", indent=2)
    if compared.run_regressed:
        page.line(("The run as a whole passes less often, for certain.", "red"), indent=2)


def _write(test: ComparedTest, page: Page) -> None:
    remarks = "".join(f", {remark}" for remark in _remarks(test))
    status = f"{test.change}, {test.strength}" if test.strength else str(test.change)
    suspected = test.change is Change.REGRESSED and test.strength is Strength.SUSPECTED
    page.line(
        ("?", "yellow") if suspected else _SIGNS[test.change],
        f" {one_line(test.diff.key.name)} · {one_line(test.diff.key.target)}",
        f"  {status}: {_figures(test)}{remarks}",
        indent=2,
        hang=2,
    )


def _figures(test: ComparedTest) -> str:
    before, after = _figure(test.before), _figure(test.after)
    return before if before == after else f"{before} → {after}"


def _figure(side: Side | None) -> str:
    if side is None:
        return "not defined"
    if side.pass_rate is None:
        return "not run"
    return f"{side.status} {percent(side.pass_rate)} of {side.counts.n}"


def _remarks(test: ComparedTest) -> Iterator[str]:
    for check in test.checks:
        yield f"check {check_name(check)} {check_text(check)}"
    if test.new_failure_codes:
        yield f"new: {', '.join(test.new_failure_codes)}"
    if test.output_changed:
        yield "the output is another one"
    for turn in test.diff.behaviour.turns:
        yield f"the answer of turn {turn} is another one"


def _options(out: TextIO) -> ReportOptions:
    return ReportOptions(color=wants_color(out), width=shutil.get_terminal_size().columns)
