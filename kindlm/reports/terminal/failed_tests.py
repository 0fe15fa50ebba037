"""The parts of the terminal report about single tests: what went wrong, and the details of each.

`write_details` is for `--verbose`: calls, tries, bodies, and time by assertion.
"""

from __future__ import annotations

from kindlm.history.masking import Mask, mask_of
from kindlm.history.repeat_statistics import RepeatStatistics, repeat_statistics
from kindlm.history.rows import AssertionView, CallView, ExecutionView, SuiteView, TestView
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports.facts import (
    FailedAssertion,
    FailedExecution,
    assertion_name,
    findings_of,
    place,
    show_command,
    show_run,
    times,
    went_wrong,
)
from kindlm.reports.figures import chances_text, duration, pass_rate_text, score_text
from kindlm.reports.terminal.page import Page, mark
from kindlm.reports.untrusted import bounded, one_line, visible
from kindlm.wording import count

_DETAILED_TESTS = 100
"""How many tests are shown in detail."""

_FINDINGS = 12
_WARNINGS = 5


def write_failures(view: RunView, page: Page, *, verbose: bool) -> None:
    """Write what went wrong in every test that did not pass, or passed in spite of a failure."""
    told = left_out = 0
    for suite, test in went_wrong(view):
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
        fields = [("repeats", f"{pass_rate_text(repeats)}, {chances_text(repeats)}")]
        if repeats.score is not None:
            fields.append(("score", score_text(repeats.score, repeats.confidence)))
        page.fields(fields, indent=4)
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


def _write_error(error: FailedExecution, page: Page, *, verbose: bool) -> None:
    first = error.first
    page.line(
        (f"{first.error_code} ({first.error_number})", "magenta"),
        (times(error.executions), "bold"),
        f"  {visible(bounded(error.message, 1_000, lines=10))}",
        indent=4,
        hang=2,
    )
    if first.hint:
        page.line(visible(bounded(first.hint, 500, lines=5)), indent=6)
    if verbose and first.trace:
        page.line((visible(bounded(first.trace, 20_000)), "dim"), indent=6)
    page.unbroken((show_command(error.executions[0]), "cyan"), indent=6)


def _write_assertion(test: TestView, finding: FailedAssertion, page: Page) -> None:
    assertion = finding.assertion
    page.line(
        mark(assertion.outcome),
        f" {assertion_name(assertion)}",
        (times(finding.executions), "bold"),
        (f"  {assertion.failure_code or ''}", "red"),
        (f"  {place(test.file, assertion)}", "dim"),
        indent=4,
        hang=2,
    )
    if assertion.message:
        page.line(visible(bounded(assertion.message, 1_000, lines=10)), indent=6)
    page.fields(finding.fields(), indent=6)
    page.unbroken((show_command(finding.executions[0]), "cyan"), indent=6)


_EXECUTIONS = 500
"""How many are shown; `kindlm show` shows each of the others."""

_BODY = 20_000
_FAST_MS = 10


def write_details(view: RunView, page: Page) -> None:
    """Write what each execution took: every try of every call, and the time of each assertion.

    Bodies are those of executions that did not pass.
    """
    told = 0
    for test in view.tests():
        repeats = repeat_statistics(view.db, test)
        for execution in view.executions(test):
            if told == _EXECUTIONS:
                page.blank()
                page.line(f"… and more: {show_run(view)} EXECUTION --verbose", indent=2)
                return
            if execution.status in (None, Status.SKIPPED):
                continue
            if not told:
                page.heading("Details")
            told += 1
            _write_execution(view, execution, page)
        if repeats is not None:
            _write_repeats(test, repeats, page)


def _write_execution(view: RunView, execution: ExecutionView, page: Page) -> None:
    calls, attempts = view.calls(execution), view.attempts(execution)
    mask = mask_of(attempts)
    figures = [count(len(calls), "call")]
    if execution.attempt > 1:
        figures.insert(0, f"attempt {execution.attempt}")
    if execution.latency_ms is not None:
        figures.append(duration(execution.latency_ms))
    page.blank()
    page.line(
        mark(execution.status or Status.SKIPPED),
        " ",
        (one_line(execution.test), "bold"),
        f" · {one_line(execution.target)} #{execution.repeat}",
        (f"  {', '.join(figures)}", "dim"),
        indent=2,
        hang=2,
    )
    with_bodies = execution.status in (Status.FAILED, Status.ERRORED)
    for call in calls:
        _write_call(call, page, mask, with_body=with_bodies)
    for attempt in attempts:
        if len(attempts) > 1:
            page.line((f"attempt {attempt.number}: {attempt.execution.status}", "dim"), indent=4)
        for assertion in attempt.assertions:
            _write_check(assertion, page)


def _write_repeats(test: TestView, repeats: RepeatStatistics, page: Page) -> None:
    page.blank()
    name = f"{one_line(test.name)} · {one_line(test.target)}"
    page.line((name, "bold"), f"  {pass_rate_text(repeats)}", indent=2, hang=2)
    page.line((chances_text(repeats), "dim"), indent=4, hang=2)
    if repeats.score is not None:
        page.line((f"score {score_text(repeats.score, repeats.confidence)}", "dim"), indent=4)


def _write_call(call: CallView, page: Page, mask: Mask, *, with_body: bool) -> None:
    who = f"call {call.call}  {call.purpose}, {one_line(call.provider)} {one_line(call.model)}"
    time = "" if call.latency_ms is None else f"  {duration(call.latency_ms)}"
    failed = ""
    if call.status == "failed":
        status = f", HTTP {call.http_status}" if call.http_status else ""
        again = call.retry_in_ms
        then = "" if again is None else f", tried again after {duration(again)}"
        failed = f"  {call.error_code}{status}{then}"
    page.line((who, "dim"), (time, "dim"), (failed, "magenta"), indent=4, hang=2)
    if with_body and call.raw is not None:
        body = visible(bounded(mask.text(call.raw), _BODY))
        page.line((f"body  {body}", "dim"), indent=6, hang=2)


def _write_check(assertion: AssertionView, page: Page) -> None:
    took = assertion.duration_ms
    time = f"{took:.2f} ms" if took < _FAST_MS else duration(took)
    name = f" {assertion_name(assertion)}"
    page.line(mark(assertion.outcome), name, (f"  {time}", "dim"), indent=4, hang=2)
