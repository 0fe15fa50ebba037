"""The terminal report: what happened, what went wrong and why, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TextIO

from rich.cells import cell_len, set_cell_size

from kindlm.history.repeat_statistics import differing_verdicts
from kindlm.history.rows import SuiteView, TestView
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports.facts import (
    describe_group,
    describe_shard,
    gates_otherwise,
    next_command,
    run_text,
    show_run,
    then_text,
    totals_of,
    verdict_of,
)
from kindlm.reports.figures import comparison, duration, money, tally
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.terminal.failed_tests import write_details, write_failures
from kindlm.reports.terminal.page import Page, mark
from kindlm.reports.untrusted import bounded, one_line, visible
from kindlm.wording import count

_DIFFERING_TESTS = 100
_NAMED_TESTS = 20
_WARNINGS = 5
_LISTED_TESTS = 1000
"""From so many tests on, the list is left to other reports."""

_REPEATS_WIDTH = 10
_FIGURE_WIDTH = 9
_TARGET_WIDTH = 24


class _TerminalReport:
    name = "terminal"

    def write(self, view: RunView, out: TextIO, options: ReportOptions) -> None:
        """Write the report."""
        page = Page(out, options)
        _write_head(view, page)
        listed = options.verbose or view.summary.tests.total < _LISTED_TESTS
        for suite in view.suites:
            # A file of whose tests none was selected has nothing to show.
            if suite.tests.total or suite.error_code is not None:
                _write_suite(view, suite, page, listed=listed)
        write_failures(view, page, verbose=options.verbose)
        _write_two_verdicts(view, page, verbose=options.verbose)
        if options.verbose:
            write_details(view, page)
        _write_gates(view, page)
        _write_tolerated(view, page)
        _write_skipped(view, page)
        _write_warnings(view, page)
        _write_missing(view, page)
        page.heading("Totals")
        page.fields(list(totals_of(view)), indent=2)
        _write_end(view, page, options, listed=listed)


REPORT = _TerminalReport()


def _write_head(view: RunView, page: Page) -> None:
    source = view.info.source_run
    shown = run_text(view) + (f" · from {one_line(source)}" if source else "")
    what = "Run " if view.group is None else "Group "
    page.line((what, "bold"), (one_line(view.info.id), "bold cyan"), f"  {shown}", hang=4)
    if view.shard is not None:
        page.line(one_line(describe_shard(view.shard)), hang=4)
    if view.group is not None:
        for line in describe_group(view.group):
            page.line(line, hang=4)


def _write_suite(view: RunView, suite: SuiteView, page: Page, *, listed: bool) -> None:
    page.blank()
    place = suite.path if suite.line is None else f"{suite.path}:{suite.line}"
    # A suite that is named after its file says so once.
    where = "" if place == suite.name else f"  {one_line(place)}"
    page.line((one_line(suite.name), "bold"), (where, "dim"), hang=2)
    if suite.error_code is not None:
        code = f"{suite.error_code} ({suite.error_number})"
        message = visible(bounded(suite.error or "", 2_000, lines=20))
        page.line(mark(Status.ERRORED), f" {code}: {message}", indent=2, hang=2)
        if suite.hint:
            page.line(visible(bounded(suite.hint, 500, lines=5)), indent=4)
        if suite.skipped_tests:
            page.line(f"{count(suite.skipped_tests, 'test')} skipped.", indent=4)
    elif listed:
        targets = [one_line(target) for target in view.targets(suite)]
        width = min(max(map(cell_len, targets), default=0), _TARGET_WIDTH)
        for test in view.tests(suite.id):
            _write_test(test, page, width, file=suite.path)
    else:
        pending = "pending" if view.status == "running" else "not run"
        shown = f" {count(suite.tests.total, 'test')}: {tally(suite.tests, pending)}"
        page.line(mark(suite.status), shown, indent=2, hang=2)


def _write_test(test: TestView, page: Page, target_width: int, file: str) -> None:
    """Write one line: name, target, repeats passed, mean time, cost as far as they are known.

    Names of scenarios begin with their file, which stands above them.
    """
    name, target = one_line(test.name.removeprefix(f"{file}::")), one_line(test.target)
    figures = set_cell_size(target, target_width) + "  " + _repeats(test).ljust(_REPEATS_WIDTH)
    time = "" if test.latency_ms is None else duration(test.latency_ms)
    cost = "" if test.cost_usd is None else money(test.cost_usd)
    figures += time.rjust(_FIGURE_WIDTH) + cost.rjust(_FIGURE_WIDTH)
    room = page.width - 6 - len("  ") - cell_len(figures)
    if cell_len(name) <= room:
        name = set_cell_size(name, room)
        page.unbroken(mark(test.status), f" {name}  ", (figures.rstrip(), "dim"), indent=2)
        return
    page.line(mark(test.status), f" {name}", indent=2, hang=2)
    page.unbroken((figures.rstrip(), "dim"), indent=max(page.width - 2 - cell_len(figures), 4))


def _repeats(test: TestView) -> str:
    if not test.counts.total:
        return "not run"
    if not test.counts.tested:
        return "skipped"
    shown = f"{test.counts.passed}/{test.counts.tested}"
    return f"{shown} flaky" if test.flaky else shown


def _write_two_verdicts(view: RunView, page: Page, *, verbose: bool) -> None:
    """Write a line for each test on which the two verdicts differ."""
    found = list(islice(differing_verdicts(view), None if verbose else _DIFFERING_TESTS + 1))
    if not found:
        return
    page.heading("Judged by the rules of EvalView, and otherwise by those of kindlm")
    for test in found if verbose else found[:_DIFFERING_TESTS]:
        said = f"EvalView: {test.evalview} of {test.n} pass, kindlm: {test.kindlm} of {test.n}"
        if test.n == 1:
            words = ("does not pass", "passes")
            said = f"EvalView: {words[test.evalview]}, kindlm: {words[test.kindlm]}"
        page.line(
            f"{one_line(test.test)} · {one_line(test.target)}",
            (f"  {said}", "dim"),
            indent=2,
            hang=2,
        )
    if not verbose and len(found) > _DIFFERING_TESTS:
        page.line(f"… and more: {show_run(view)} --verbose", indent=2)


def _write_gates(view: RunView, page: Page) -> None:
    """Write every gate with its value, its threshold and what it said."""
    suites = [suite for suite in view.suites if suite.gates]
    for suite in suites:
        page.heading("Gates" if len(suites) == 1 else f"Gates of {one_line(suite.name)}")
        width = max(len(gate.name) for gate in suite.gates)
        for gate in suite.gates:
            sign = mark(Status.PASSED if gate.passed else Status.FAILED)
            page.line(
                ("!", "yellow") if gate.warning else sign,
                f" {gate.name.ljust(width)}  {comparison(gate)}",
                (f"  {gate.message}", "dim"),
                indent=2,
                hang=4,
            )


def _write_tolerated(view: RunView, page: Page) -> None:
    """Name the tests that failed and are tolerated, since a written pass rate was reached."""
    for suite in view.suites:
        if not (suite.tolerates and suite.tests.failed):
            continue
        gate = next(gate for gate in suite.gates if gate.name == "passRateMin")
        tests = (test for test in view.tests(suite.id) if test.status is Status.FAILED)
        page.heading(f"Failed, and tolerated by passRateMin {gate.threshold:g}")
        _write_names(tests, suite.tests.failed, page)


def _write_missing(view: RunView, page: Page) -> None:
    """Say what a run that was stopped did not come to."""
    if not view.missing or view.status == "running":
        return
    page.heading(f"Not run: {view.missing:,} of {count(view.info.planned, 'execution')}")
    unfinished = list(islice(_untested(view), _NAMED_TESTS + 1))
    if unfinished:
        _write_names(unfinished[:_NAMED_TESTS], len(unfinished), page)


def _write_skipped(view: RunView, page: Page) -> None:
    """Say why executions were skipped that no test says to skip, and why assertions were."""
    reasons, assertions = view.skip_reasons(), view.skipped_assertions()
    if not reasons and not assertions:
        return
    page.heading("Skipped")
    for suite, reason, number in reasons:
        executions = count(number, "execution")
        page.line(f"{executions} of {one_line(suite)}: {one_line(reason)}", indent=2, hang=2)
    for suite, kind, message, number in assertions:
        skipped = count(number, f"{one_line(kind)} assertion")
        said = one_line(message or "[erased]")
        page.line(f"{skipped} of {one_line(suite)}: {said}", indent=2, hang=2)


def _write_warnings(view: RunView, page: Page) -> None:
    """Write what executions were warned of that passed: of the others it stands beside them."""
    warnings = view.warnings_of_passed()
    if not warnings:
        return
    page.heading("Warnings")
    for warning, number in warnings[:_WARNINGS]:
        text = f" {count(number, 'execution')}: {visible(bounded(warning, 500, lines=5))}"
        page.line(("!", "yellow"), text, indent=2, hang=2)
    if len(warnings) > _WARNINGS:
        page.line(f"… and {len(warnings) - _WARNINGS:,} more warnings", indent=2)


def _untested(view: RunView) -> Iterator[TestView]:
    """Yield the tests of which nothing ended, of all those that were selected."""
    for suite in view.suites:
        for test in view.tests(suite.id):
            unfinished = any(execution.status is None for execution in view.executions(test))
            if not test.counts.total or unfinished:
                yield test


def _write_names(tests: Iterable[TestView], total: int, page: Page) -> None:
    for test in islice(tests, _NAMED_TESTS):
        counts = test.counts
        repeats = f"  {counts.passed}/{counts.tested}" if counts.tested else ""
        page.line(
            f"{one_line(test.name)} · {one_line(test.target)}", (repeats, "dim"), indent=2, hang=2
        )
    if total > _NAMED_TESTS:
        page.line("… and more", indent=2)


def _write_end(view: RunView, page: Page, options: ReportOptions, *, listed: bool) -> None:
    verdict = verdict_of(view)
    page.blank()
    color = "bold green" if verdict.passed else "bold red"
    reasons = ", ".join(one_line(reason) for reason in verdict.reasons)
    page.line((verdict.word, color), f": {reasons}", hang=2)
    # What users saw when the run ended, where today's rules say something else.
    if (then := then_text(view)) is not None:
        page.line((then, "yellow"), indent=2, hang=2)
    for suite in view.suites:
        for told in gates_otherwise(view, suite):
            page.line((told, "yellow"), indent=2)
    page.blank()
    if not listed:
        all_tests = f"{show_run(view)} --verbose"
        page.unbroken(("All tests  ", "dim"), visible(_typed(all_tests, options)))
    if options.database is not None:
        page.unbroken(("History    ", "dim"), visible(options.database))
    # A run that was made from another one is compared with that one.
    if (earlier := view.info.source_run or view.run_before) is not None:
        compare = f"kindlm diff {earlier} {view.id}"
        page.unbroken(("Compare    ", "dim"), visible(_typed(compare, options)))
    following = options.first or _typed(next_command(view), options)
    page.unbroken(("Next       ", "dim"), visible(following))


def _typed(command: str, options: ReportOptions) -> str:
    """Return a command as it has to be typed: a history that was named is named again."""
    if options.named and options.database is not None:
        return f"{command} --db {shlex.quote(options.database)}"
    return command
