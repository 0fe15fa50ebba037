"""The report `terminal`: results, causes of failures, the verdict, and the next command."""

from __future__ import annotations

import heapq
import shlex
from typing import TextIO

from rich.cells import cell_len, set_cell_size

from kindlm.history.queries import SKIPPED_ASSERTIONS
from kindlm.history.rows import SuiteView, TestView
from kindlm.history.run_view import RunView
from kindlm.history.trends import differing_verdicts
from kindlm.outcome import Status
from kindlm.reports import commands, facts
from kindlm.reports.figures import comparison, duration
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.terminal.page import BETWEEN, MARKS, Page
from kindlm.reports.untrusted import bounded, one_line
from kindlm.wording import count

_MOST_COMPARED_TESTS = 100
"""Runs of more tests are only compared by `kindlm diff`, which may take a while."""

_MOST_NAMED_TARGETS = 2

_REPEATS_WIDTH = 10
_FIGURE_WIDTH = 9
_TARGET_WIDTH = 24


def write_report(view: RunView, out: TextIO, options: ReportOptions) -> None:
    """Write the report."""
    page = Page(out, options)
    # Suites without selected tests are left out.
    suites = [s for s in view.suites if s.tests.total or s.error_code is not None]
    if not options.quiet:
        _write_head(view, page)
    for suite in suites:
        if not options.quiet or suite.error_code is not None:
            _write_suite(view, suite, page, options)
    if not options.quiet:
        _write_notes(view, page)
    if any(test.flaky or facts.is_wrong(test) for test in view.tests()):
        # Imported late: a run that passed does not need it.
        from kindlm.reports.terminal.run_details import write_failures

        write_failures(view, page)
    if not options.quiet:
        _write_two_verdicts(view, page)
    if options.durations:
        _write_slowest(view, page, options.durations)
    if options.verbose:
        from kindlm.reports.terminal.run_details import write_details

        write_details(view, page)
        page.heading("Totals")
        page.fields(list(facts.totals_of(view)), indent=2)
    if page.has_blocks:
        page.blank()
    _write_verdict(view, page, in_one_line=options.quiet and view.passed)
    if not options.quiet:
        _write_next(view, page, options)


def _write_head(view: RunView, page: Page) -> None:
    """Write the label and the source of a run, or the group, if it has any."""
    source = view.info.source_run
    if page.verbose or source or view.group is not None:
        shown = facts.run_text(view) + (f" · from {one_line(source)}" if source else "")
        what = "Run " if view.group is None else "Group "
        page.line((what, "bold"), (one_line(view.info.id), "bold cyan"), f"  {shown}", hang=4)


def _write_suite(view: RunView, suite: SuiteView, page: Page, options: ReportOptions) -> None:
    """Write a suite as one line, then its tests with `verbose`, then its gates."""
    if suite.error_code is not None:
        where = commands.place(suite.path, suite.line, page.root)
        code = f"{suite.error_code} ({suite.error_number})"
        page.line(MARKS[Status.ERRORED], " ", (where, "bold"), f"  {code}", hang=2)
        if suite.path not in options.not_loaded:
            page.line(bounded(suite.error or "", 2_000, lines=20), indent=4)
            if suite.hint:
                page.line(bounded(suite.hint, 500, lines=5), indent=4)
        if suite.skipped_tests:
            page.line(f"{count(suite.skipped_tests, 'test')} skipped.", indent=4)
        return
    counts = suite.executions
    status = suite.status
    if status is Status.PASSED and facts.lacking_of(view, suite):
        status = Status.SKIPPED
    page.ends(
        (MARKS[status], " ", (one_line(suite.full_name), "bold"), f"  {_scope(view, suite)}"),
        f"{counts.passed:,}/{counts.tested:,}" if counts.tested else "not run",
    )
    if options.verbose:
        targets = [one_line(target) for target in view.targets(suite)]
        width = min(max(map(cell_len, targets), default=0), _TARGET_WIDTH)
        for test in view.tests(suite.id):
            _write_test(view, test, page, width, file=suite.path)
    # The gates of the suite's file that hold. The verdict names failed gates.
    held = (g for g in suite.gates if g.written and g.passed and g.actual is not None)
    if shown := [f"{g.name} {comparison(g)}" for g in held]:
        page.packed(("  gates  ", "dim"), shown)
    for gate in suite.gates:
        # The message says why a gate has no value.
        if gate.actual is None and (gate.written or not gate.passed):
            sign = ("!", "yellow") if gate.warning else MARKS[Status.FAILED]
            page.line(sign, f" gate {gate.name}: {gate.message}", indent=2, hang=2)


def _scope(view: RunView, suite: SuiteView) -> str:
    """Return the size of a suite: `8 tests on gpt-4o, claude-sonnet × 3 repeats`."""
    names, targets, repeats = set[str](), dict[str, None](), set[int]()
    for test in view.tests(suite.id):
        names.add(test.name)
        targets[one_line(test.target, 40)] = None
        if test.counts.tested:
            repeats.add(test.counts.total)
    few = len(targets) <= _MOST_NAMED_TARGETS
    where = ", ".join(targets) if few else f"{len(targets)} targets"
    # A stopped run only counts the repeats that began.
    alike = len(repeats) == 1 and repeats != {1} and not view.missing
    repeated = f" × {max(repeats)} repeats" if alike else ""
    skipped = f", {suite.tests.skipped:,} skipped" if suite.tests.skipped else ""
    return f"{count(len(names), 'test')} on {where}{repeated}{skipped}"


def _write_test(view: RunView, test: TestView, page: Page, target_width: int, file: str) -> None:
    """Write one line: name, target, passed repeats, and, if known, mean time and cost."""
    # The name of a scenario begins with its file, which is written above.
    name, target = one_line(test.name.removeprefix(f"{file}::")), one_line(test.target)
    repeats = facts.repeats_text(test).ljust(_REPEATS_WIDTH)
    figures = f"{set_cell_size(target, target_width)}  {repeats}"
    time = "" if test.latency_ms is None else duration(test.latency_ms)
    figures += time.rjust(_FIGURE_WIDTH) + facts.cost_of(view, test).rjust(_FIGURE_WIDTH)
    page.ends(("  ", MARKS[test.status], f" {name}"), figures)


def _write_notes(view: RunView, page: Page) -> None:
    """Write notes on the run, and why checks were skipped."""
    for note in facts.notes_of(view):
        page.line(bounded(note, 500, lines=5), indent=2, hang=2)
    for kind, message, number in view.ask(SKIPPED_ASSERTIONS):
        skipped = count(number, f"{one_line(kind)} check")
        page.line(f"{skipped} skipped: {one_line(message or '[erased]')}", indent=2, hang=2)


def _write_two_verdicts(view: RunView, page: Page) -> None:
    """Write the tests whose result differs between the rules of EvalView and of kindlm."""
    for index, test in enumerate(differing_verdicts(view)):
        if not index:
            page.heading("Different results by the rules of EvalView and of kindlm")
        words = f"EvalView: {test.evalview} of {test.n} pass, kindlm: {test.kindlm} of {test.n}"
        name = f"{one_line(test.test)} · {one_line(test.target)}"
        page.line(name, (f"  {words}", "dim"), indent=2, hang=2)


def _write_slowest(view: RunView, page: Page, most: int) -> None:
    """Write the slowest tests, by the mean latency of their repeats."""
    timed = (test for test in view.tests() if test.latency_ms is not None)
    slowest = heapq.nlargest(most, timed, key=lambda test: test.latency_ms or 0.0)
    if slowest:
        page.heading("Slowest")
    for test in slowest:
        time = duration(test.latency_ms or 0.0).rjust(_FIGURE_WIDTH)
        page.line(time, f"  {one_line(test.name)} · {one_line(test.target)}", indent=2, hang=11)


def _write_verdict(view: RunView, page: Page, *, in_one_line: bool = False) -> None:
    """Write the verdict: its reasons, passed executions, cost, time, and the run's id."""
    verdict = facts.verdict_of(view)
    color = "bold green" if verdict.good else "bold red"
    *reasons, last = (one_line(reason, 500) for reason in verdict.reasons)
    shown = [last, *facts.figures_of(view)]
    if not in_one_line and (attacks := facts.attacks_of(view)) is not None:
        page.line(f"Attack success rate: {attacks}", hang=2)
    label = f" {one_line(view.info.label)}" if view.info.label else ""
    shown.append(f"{'run' if view.group is None else 'group'} {one_line(view.id)}{label}")
    if in_one_line:
        line = ", ".join([*reasons, BETWEEN.join(shown)])
        page.unbroken((f"{verdict.word}: ", color), line)
    else:
        page.packed((f"{verdict.word}: ", color), [*(f"{each}," for each in reasons), *shown])


def _write_next(view: RunView, page: Page, options: ReportOptions) -> None:
    """Write what changed since the previous run, and the next command."""
    source = view.info.source_run
    earlier = view.before if source is None else RunView(view.db, source)
    if view.info.mode == "settled" or (isinstance(earlier, RunView) and not earlier.is_recorded):
        earlier = None  # a comparison adds settled repeats to those of their source
    if isinstance(earlier, RunView) and view.summary.executions.tested:
        ended = view.summary.executions
        # A run may pass although some executions did not, and more of them than before.
        may_be_worse = view.status == "failed" or (view.passed and ended.passed < ended.tested)
        if may_be_worse and view.summary.tests.total <= _MOST_COMPARED_TESTS:
            # Imported late: it takes longer than the report of a run without any failure.
            from kindlm.history.diff.run_diff import DiffOptions, RunDiff
            from kindlm.reports.diff.phrases import headline_of

            compared = DiffOptions(regression_threshold=options.regression_threshold)
            diff = RunDiff(earlier, view, compared)
            # A run that passed without bad news needs no line.
            if diff.compared and not ((headline := headline_of(diff)).good and view.passed):
                reasons = "; ".join(headline.reasons)
                page.line(f"Since {one_line(earlier.id)}: {reasons}", hang=2)
        compare = page.typed(f"kindlm diff {shlex.quote(earlier.id)} {view.id}")
        page.unbroken(("Compare: ", "dim"), compare)
    following = commands.next_command(view, options)
    tests, counts = view.summary.tests, view.summary.executions
    # Only a gate may have failed, or a test by a limit for all its repeats, each of which passed.
    has_failed = (tests.failed or tests.errored) and (counts.failed or counts.errored)
    is_own = view.info.mode == "live" and view.runner is None
    # `--failed` would leave out the tests of a suite that could not be loaded: they have not run.
    all_loaded = all(suite.error_code is None for suite in view.suites)
    if view.status == "failed" and is_own and has_failed and all_loaded:
        # Each cause names the command that shows it.
        following = commands.rerun_failed(view, options)
    page.unbroken(("Next: ", "dim"), page.typed(options.first or following))
