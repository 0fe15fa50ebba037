"""The part of the terminal report that says what went wrong, test by test."""

from __future__ import annotations

from collections.abc import Iterator

from kindlm.history.repeat_statistics import RepeatStatistics, repeat_statistics
from kindlm.history.rows import SuiteView, TestView
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports.assertion_text import assertion_fields, assertion_name, place
from kindlm.reports.findings import FailedAssertion, FailedExecution, findings_of
from kindlm.reports.repeats_text import chances_text, pass_rate_text, score_text
from kindlm.reports.terminal_page import Page, mark
from kindlm.reports.untrusted import bounded, one_line, visible
from kindlm.reports.verdict_text import show_command, show_run

_DETAILED_TESTS = 100
"""So many tests are told in detail; nobody reads more in a terminal."""

_FINDINGS = 12
_TOOLS = 12
_WARNINGS = 5


def write_failures(view: RunView, page: Page, *, verbose: bool) -> None:
    """Write what went wrong in every test that did not pass, or passed in spite of a failure."""
    told = left_out = 0
    for suite in view.suites:
        for test in view.tests(suite.id):
            if not (test.counts.failed or test.counts.errored or test.broken_limits):
                continue
            if told == _DETAILED_TESTS and not verbose:
                left_out += 1
                continue
            if not told:
                page.heading("What went wrong")
            told += 1
            _write_test(view, suite, test, page, verbose=verbose)
    if left_out:
        page.blank()
        page.line(f"… and in {left_out:,} more tests: {show_run(view)} --verbose", indent=2)


def _write_test(
    view: RunView, suite: SuiteView, test: TestView, page: Page, *, verbose: bool
) -> None:
    counts = test.counts
    how = Status.ERRORED if counts.errored and not counts.failed else Status.FAILED
    number = counts.failed or counts.errored
    # Names of scenarios begin with the name of their suite, which is their file.
    where = "" if test.name.startswith(f"{suite.name}::") else f"{one_line(suite.name)}, "
    page.blank()
    page.line(
        mark(test.status),
        " ",
        (one_line(test.name), "bold"),
        f" · {one_line(test.target)}",
        (f"  {where}{number} of {counts.tested} {how.value}", "dim"),
        indent=2,
        hang=2,
    )
    for sentence in test.broken_limits:
        page.line((f"{sentence}.", "red"), indent=4, hang=2)
    if (repeats := repeat_statistics(view.db, test)) is not None:
        page.fields(list(_statistics(repeats)), indent=4)
    findings = findings_of(view, test)
    for error in findings.errors[:_FINDINGS]:
        _write_error(error, page, verbose=verbose)
    for finding in findings.assertions[:_FINDINGS]:
        _write_assertion(test, finding, page)
    more = len(findings.errors[_FINDINGS:]) + len(findings.assertions[_FINDINGS:])
    if more:
        page.line(f"… and {more} more findings", indent=4)
    for warning in findings.warnings[:_WARNINGS]:
        text = visible(bounded(warning, 500, lines=5))
        page.line(("Warning: ", "yellow"), text, indent=4, hang=2)


def _statistics(repeats: RepeatStatistics) -> Iterator[tuple[str, str]]:
    yield "repeats", f"{pass_rate_text(repeats)}, {chances_text(repeats)}"
    if repeats.score is not None:
        yield "score", score_text(repeats.score, repeats.confidence)


def _write_error(error: FailedExecution, page: Page, *, verbose: bool) -> None:
    first = error.first
    page.line(
        (f"{first.error_code} ({first.error_number})", "magenta"),
        _times(error.executions),
        f"  {visible(bounded(error.message, 1_000, lines=10))}",
        indent=4,
        hang=2,
    )
    if first.hint:
        page.line(visible(bounded(first.hint, 500, lines=5)), indent=6)
    if verbose and first.trace:
        page.line((visible(bounded(first.trace, 20_000)), "dim"), indent=6)
    _write_command(error.executions[0], page)


def _write_assertion(test: TestView, finding: FailedAssertion, page: Page) -> None:
    assertion = finding.assertion
    page.line(
        mark(assertion.outcome),
        f" {assertion_name(assertion)}",
        _times(finding.executions),
        (f"  {assertion.failure_code or ''}", "red"),
        (f"  {place(test.file, assertion)}", "dim"),
        indent=4,
        hang=2,
    )
    if assertion.message:
        page.line(visible(bounded(assertion.message, 1_000, lines=10)), indent=6)
    fields = assertion_fields(assertion)
    if finding.tools:
        names = ", ".join(one_line(tool, 60) for tool in finding.tools[:_TOOLS])
        more = len(finding.tools) - _TOOLS
        fields.append(("tools", f"{names} and {more} more" if more > 0 else names))
    page.fields(fields, indent=6)
    _write_command(finding.executions[0], page)


def _times(executions: list[str]) -> tuple[str, str]:
    return (f" ×{len(executions)}" if len(executions) > 1 else "", "bold")


def _write_command(execution: str, page: Page) -> None:
    page.unbroken((show_command(execution), "cyan"), indent=6)
