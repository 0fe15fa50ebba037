"""What `--verbose` adds to the terminal report: calls, tries, bodies, and time by assertion."""

from __future__ import annotations

from kindlm.history.masking import Mask, mask_of
from kindlm.history.repeat_statistics import RepeatStatistics, repeat_statistics
from kindlm.history.rows import CallView, ExecutionView, TestView
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports.facts import assertion_name, show_run
from kindlm.reports.figures import chances_text, duration, pass_rate_text, score_text
from kindlm.reports.terminal.page import Page, mark
from kindlm.reports.untrusted import bounded, one_line, visible
from kindlm.wording import count

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
            took = assertion.duration_ms
            time = f"{took:.2f} ms" if took < _FAST_MS else duration(took)
            name = f" {assertion_name(assertion)}"
            page.line(mark(assertion.outcome), name, (f"  {time}", "dim"), indent=4, hang=2)


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
