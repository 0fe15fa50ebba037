"""The part of the terminal report that says what went wrong, test by test."""

from __future__ import annotations

import json
from typing import Any

from kindlm.history.rows import AssertionView, SuiteView, TestView
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports.figures import score
from kindlm.reports.findings import FailedAssertion, FailedExecution, findings_of
from kindlm.reports.page import Page, mark
from kindlm.reports.untrusted import bounded, one_line, visible

__all__ = ["assertion_fields", "assertion_name", "json_shown", "place", "write_failures"]

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
            if not (test.counts.failed or test.counts.errored):
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
        page.line(f"… and in {left_out:,} more tests: kindlm show {view.id} --verbose", indent=2)


def _write_test(
    view: RunView, suite: SuiteView, test: TestView, page: Page, *, verbose: bool
) -> None:
    counts = test.counts
    how = Status.FAILED if counts.failed else Status.ERRORED
    number = counts.failed or counts.errored
    page.blank()
    page.line(
        mark(test.status),
        " ",
        (one_line(test.name), "bold"),
        f" · {one_line(test.target)}",
        (f"  {one_line(suite.name)}, {number} of {counts.tested} {how.value}", "dim"),
        indent=2,
        hang=2,
    )
    findings = findings_of(view, test)
    for error in findings.errors[:_FINDINGS]:
        _write_error(view, error, page, verbose=verbose)
    for finding in findings.assertions[:_FINDINGS]:
        _write_assertion(view, suite, finding, page)
    more = len(findings.errors[_FINDINGS:]) + len(findings.assertions[_FINDINGS:])
    if more:
        page.line(f"… and {more} more findings", indent=4)
    for warning in findings.warnings[:_WARNINGS]:
        text = visible(bounded(warning, 500, lines=5))
        page.line(("Warning: ", "yellow"), text, indent=4, hang=2)


def _write_error(view: RunView, error: FailedExecution, page: Page, *, verbose: bool) -> None:
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
    _write_command(view, error.executions[0], page)


def _write_assertion(view: RunView, suite: SuiteView, finding: FailedAssertion, page: Page) -> None:
    assertion = finding.assertion
    page.line(
        mark(assertion.outcome),
        f" {assertion_name(assertion)}",
        _times(finding.executions),
        (f"  {assertion.failure_code or ''}", "red"),
        (f"  {place(suite.path, assertion)}", "dim"),
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
    _write_command(view, finding.executions[0], page)


def assertion_name(assertion: AssertionView) -> str:
    """Return the kind and the label of an assertion, safe to print."""
    if assertion.label in ("", assertion.kind):
        return one_line(assertion.kind)
    return f"{one_line(assertion.kind)} {one_line(assertion.label)}"


def assertion_fields(assertion: AssertionView, *, limit: int = 300) -> list[tuple[str, str]]:
    """Return what an assertion saw, in rows, safe to print."""
    fields = []
    if assertion.threshold is not None and assertion.score is not None and _is_scored(assertion):
        fields.append(("score", f"{score(assertion.score)}, needs {score(assertion.threshold)}"))
    if assertion.expected is not None:
        fields.append(("expected", json_shown(assertion.expected, limit)))
    if assertion.actual is not None:
        fields.append(("actual", json_shown(assertion.actual, limit)))
    if assertion.reasoning:
        fields.append(("judge", visible(bounded(assertion.reasoning, 3 * limit, lines=12))))
    return fields


def json_shown(value: Any, limit: int) -> str:
    """Return a JSON value on one line, bounded and safe to print."""
    text = json.dumps(value, ensure_ascii=False)
    return visible(bounded(text, limit)).replace("\n", " ")


def place(path: str, assertion: AssertionView) -> str:
    """Return where an assertion was asked for, in the form that editors turn into a link."""
    return one_line(path if assertion.line is None else f"{path}:{assertion.line}")


def _is_scored(assertion: AssertionView) -> bool:
    # Limits such as a length or a time are thresholds too, but of `actual`, not of the score.
    return assertion.kind in ("judge", "drift")


def _times(executions: list[str]) -> tuple[str, str]:
    return (f" ×{len(executions)}" if len(executions) > 1 else "", "bold")


def _write_command(view: RunView, execution: str, page: Page) -> None:
    number = execution.removeprefix(f"{view.id}-")
    page.unbroken((f"kindlm show {view.id} {number}", "cyan"), indent=6)
