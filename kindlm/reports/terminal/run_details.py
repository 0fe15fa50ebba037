"""Details of the terminal report: the causes of failures, and what `--verbose` adds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from kindlm.history.masking import as_shown
from kindlm.history.rows import ExecutionView
from kindlm.history.run_view import RunView
from kindlm.history.trends import repeat_statistics
from kindlm.outcome import Status
from kindlm.reports.causes import Cause, Row, causes_of
from kindlm.reports.commands import show_command, show_run
from kindlm.reports.conversation import assertion_name, attempts_of
from kindlm.reports.facts import went_wrong
from kindlm.reports.figures import duration, repeat_texts
from kindlm.reports.terminal.execution_text import write_body, write_head, write_outcome
from kindlm.reports.terminal.page import MARKS, Page
from kindlm.reports.untrusted import bounded, one_line
from kindlm.wording import count

_MOST_BLOCKS = 20
_EXPLAINED_TESTS = 1_000
"""How many failed tests are grouped by cause."""


def write_failures(view: RunView, page: Page) -> None:
    """Write the causes of failed tests, the most frequent first, and the flaky tests.

    Without `verbose`, it writes the first `_MOST_BLOCKS` of both.
    """
    most = None if page.verbose else _MOST_BLOCKS
    wrong = went_wrong(view)
    tests = (test for _, test in islice(wrong, _EXPLAINED_TESTS))
    # Causes that hit the same executions have one block.
    blocks = dict[tuple[str, ...], list[Cause]]()
    for cause in causes_of(view, tests):
        blocks.setdefault(tuple(cause.executions), []).append(cause)
    for causes in islice(blocks.values(), most):
        page.blank()
        _write_block(causes, page)
    if most is not None and len(blocks) > most:
        page.blank()
        more = page.typed(f"{show_run(view)} --verbose")
        page.line(f"… and {count(len(blocks) - most, 'more cause')}: {more}")
    if next(wrong, None) is not None:
        first = f"first {_EXPLAINED_TESTS:,} tests that did not pass"
        page.line(f"The causes are those of the {first}.")
    flaky = (test for test in view.tests() if test.flaky)
    for index, test in enumerate(islice(flaky, most)):
        if not index:
            page.blank()
        parts = list[str]()
        if test.passed_later:
            executions = count(test.passed_later, "execution")
            parts.append(f"{executions} passed only after a retry")
        repeats = repeat_statistics(view.db, test)
        if repeats is not None:
            parts += repeat_texts(repeats)
        short = test.name.removeprefix(f"{test.file}::")
        name = f" {one_line(short)} · {one_line(test.target)} is flaky: "
        page.line(("~", "yellow"), (name, "bold"), "; ".join(parts), hang=2)
    if next(flaky, None) is not None:
        more = page.typed(f"{show_run(view)} --verbose")
        page.line(f"… and more flaky tests: {more}", indent=2)


def _write_block(causes: Sequence[Cause], page: Page) -> None:
    """Write the causes of failures in the same executions; a row that they share, once."""
    first, written = causes[0], set[Row]()
    for cause in causes:
        title = (MARKS[cause.how], " ", (cause.sentence, "bold"))
        if cause is first:
            page.ends(title, cause.whom)
        else:
            page.line(*title, hang=2)
        rows = [row for row in cause.rows if row not in written]
        written.update(rows)
        place = cause.place(page.root)
        for name, text in rows:
            # The place in the suite's file ends the first row with room for it.
            if page.row(name, text, 4, end=place):
                place = ""
        if place:
            page.row("at", place, 4)
        if page.verbose and cause.trace:
            page.line((bounded(cause.trace, 20_000), "dim"), indent=4)
    if first.where is not None:
        page.row("tests", first.where, 4)
    look = page.typed(show_command(first.executions[0]))
    page.unbroken(("look".ljust(10), "dim"), (look, "cyan"), indent=4)


_MOST_EXECUTIONS = 500
_FAST_MS = 10


def write_details(view: RunView, page: Page) -> None:
    """Write each try of each call, and the time of each assertion.

    Executions that failed or errored also have the bodies of their answers.
    """
    written = 0
    for test in view.tests():
        repeats = repeat_statistics(view.db, test)
        for execution in view.executions(test):
            if written == _MOST_EXECUTIONS:
                page.blank()
                more = page.typed(f"{show_run(view)} EXECUTION --verbose")
                page.line(f"… and more: {more}", indent=2)
                return
            if execution.status in (None, Status.SKIPPED):
                continue
            if not written:
                page.heading("Details")
            written += 1
            _write_execution(view, execution, page)
        if repeats is not None:
            page.blank()
            name = f"{one_line(test.name)} · {one_line(test.target)}"
            page.line((name, "bold"), f"  {'; '.join(repeat_texts(repeats))}", indent=2, hang=2)


def _write_execution(view: RunView, execution: ExecutionView, page: Page) -> None:
    attempts, mask = as_shown(view.attempts(execution))
    shown = attempts_of(view, execution, attempts, mask)
    calls = [each.view for a in shown for call in a.calls for each in (call, *call.made)]
    page.blank()
    write_head(view.db, attempts[-1].execution, page)
    for call in calls:
        write_outcome(call, call.purpose, page, indent=4)
        if execution.status in (Status.FAILED, Status.ERRORED):
            write_body(call, page, indent=6)
    for attempt in attempts:
        if len(attempts) > 1:
            page.line((f"attempt {attempt.number}: {attempt.execution.status}", "dim"), indent=4)
        for assertion in attempt.assertions:
            took = assertion.duration_ms
            time = f"{took:.2f} ms" if took < _FAST_MS else duration(took)
            name = f" {assertion_name(assertion)}"
            page.line(MARKS[assertion.outcome], name, (f"  {time}", "dim"), indent=4, hang=2)
