"""Writes one execution for `kindlm show`: its messages, its calls, and its checks."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, TextIO

from kindlm.history.masking import as_shown
from kindlm.history.rows import AssertionView, AttemptView, CallView, ExecutionView, SpanView
from kindlm.history.run_view import RunView
from kindlm.outcome import Outcome, Status
from kindlm.reports.commands import place
from kindlm.reports.conversation import (
    EXCERPTS,
    Called,
    assertion_fields,
    assertion_name,
    attempts_of,
    excerpts_of,
    execution_facts,
    tools_offered,
)
from kindlm.reports.figures import duration, money
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.terminal.page import MARKS, Page, Part
from kindlm.reports.untrusted import bounded, json_shown, one_line
from kindlm.transcript import not_sent

_REASON = 160
_TEXT = 20_000
_VALUE = 2_000
_RAW = 50_000
_CONTEXT = 40
_DEEPEST = 6
_TOOLS = 20
_TARGET = "assistant"


def render_execution(
    view: RunView, execution: ExecutionView, out: TextIO, options: ReportOptions
) -> None:
    """Write the conversation and the assertions of every attempt at an execution.

    `verbose` adds tool definitions, received bodies, questions to judges, traces and timing.
    """
    attempts, mask = as_shown(view.attempts(execution))
    ended = {attempt.number: attempt for attempt in attempts}
    page = Page(out, options)
    write_head(view.db, attempts[-1].execution, page)
    _write_tools(tools_offered(view.tools(execution), mask), page)
    conversations = attempts_of(view, execution, attempts, mask)
    warnings = attempts[-1].execution.warnings
    for attempt in conversations:
        of = f" of attempt {attempt.number}" if len(conversations) > 1 else ""
        page.heading(f"Transcript{of}")
        if attempt.talk:
            call = attempt.talk[0].view
            # The recorded request has all parameters; a model may not take some of them.
            sent = (
                f"{one_line(key)} {one_line(str(it))}"
                for key, it in call.parameters.items()
                if not any(each.startswith(not_sent(key)) for each in warnings)
            )
            request = ", ".join((f"{one_line(call.provider)} {one_line(call.model)}", *sent))
            page.line(("request  ", "bold cyan"), (request, "dim"), indent=2, hang=2)
        for message in attempt.first:
            _write_message(message.role, message.text, page)
        for called in attempt.calls:
            _write_call(called, called.view.purpose if called.judging else _TARGET, page)
        if attempt.number not in ended:
            page.heading(f"Attempt {attempt.number} was cut off")
            continue
        recorded = ended[attempt.number]
        _write_error(recorded.execution, of, page)
        page.heading(f"Assertions{of}")
        if not recorded.assertions:
            page.line("None was evaluated.", indent=2)
        for assertion in recorded.assertions:
            _write_assertion(assertion, recorded, page)
    if reviews := view.reviews(execution):
        page.heading("Reviews")
    for review in reviews:
        status = Status.PASSED if review.passed else Status.FAILED
        when = f"{review.at[:10]} {review.at[11:16]} UTC"
        facts = (f"  {one_line(review.by)}, {when}", "dim")
        page.line(MARKS[status], " pass" if review.passed else " fail", facts, indent=2, hang=2)
        if review.note is not None:
            page.line(bounded(review.note, _VALUE), indent=4)


def write_head(db: sqlite3.Connection, execution: ExecutionView, page: Page) -> None:
    """Write which execution it is, its figures and its warnings."""
    status = execution.status
    sign: Part = MARKS[status] if status else ("-", "dim")
    # A suite may be named after its file.
    where = ", ".join(map(one_line, dict.fromkeys((execution.suite, execution.file))))
    page.line(
        sign,
        " ",
        (one_line(execution.test), "bold"),
        f" · {one_line(execution.target)} · repeat {execution.repeat}",
        (f"  {where}", "dim"),
        hang=2,
    )
    facts = [execution.status.value if execution.status else "never finished"]
    facts += [f"{name} {text}" for name, text in execution_facts(db, execution)]
    if execution.source != execution.id:
        facts.append(f"conversation of {execution.source}")
    page.line((" · ".join(facts), "dim"), indent=2)
    for warning in execution.warnings:
        page.line(("Warning: ", "yellow"), bounded(warning, 500), indent=2, hang=2)


def _write_tools(tools: Sequence[dict[str, Any]], page: Page) -> None:
    """Write one line for each tool that the model could call; `verbose` adds its definition."""
    if not tools:
        return
    page.heading("Tool definitions")
    for tool in tools if page.verbose else tools[:_TOOLS]:
        description = one_line(str(tool.get("description") or ""))
        name = one_line(str(tool.get("name")))
        page.line((name, "cyan"), (f"  {description}", "dim"), indent=2, hang=2)
        if page.verbose:
            page.line((json_shown(tool, _RAW), "dim"), indent=4, hang=2)
    if len(tools) > _TOOLS and not page.verbose:
        page.line(f"… and {len(tools) - _TOOLS:,} more with --verbose", indent=2)


def _write_call(call: Called, who: str, page: Page, indent: int = 2) -> None:
    """Write a call: its new messages, its answer, its tool calls, and the calls of an agent.

    The messages of calls outside of the conversation are only written with `verbose`.
    """
    view, in_talk = call.view, who == _TARGET
    for message in call.sent if in_talk else ():
        _write_message(message.role, message.text, page)
    if view.purpose != "agent":
        page.blank()
    write_outcome(view, who, page, indent)
    if in_talk:
        if view.status == "responded" and view.text:
            _write_text(view.text, page)
        for used in call.tools:
            arguments = f"{one_line(used.tool)} {json_shown(used.arguments, _VALUE)}"
            page.line(("tool call  ", "cyan"), arguments, indent=4, hang=2)
            if used.has_result or used.rule is None:
                rule = (f"  {one_line(used.rule or 'no result')}", "dim")
                result = json_shown(used.response, _VALUE)
                page.line(("result     ", "cyan"), result, rule, indent=4, hang=2)
            for problem in used.problems:
                shown = bounded(problem, _VALUE)
                page.line(("problem    ", "yellow"), shown, indent=4, hang=2)
        for made in call.made:
            _write_call(made, "model", page, indent=4)
        for depth, span in call.spans:
            _write_span(depth, span, page)
    elif page.verbose:
        for message in call.sent:
            _write_message(f"  {message.role}", message.text, page)
        if view.text:
            _write_message(f"  {who}", view.text, page)
    if page.verbose:
        write_body(view, page, indent + 2)


def write_body(view: CallView, page: Page, indent: int) -> None:
    """Write the answer to a call as it was received, if it was recorded."""
    if view.raw is not None:
        body = f"body  {bounded(view.raw, _RAW)}"
        page.line((body, "dim"), indent=indent, hang=2)


def write_outcome(view: CallView, who: str, page: Page, indent: int) -> None:
    """Write a call in one line, and why it failed and whether it was tried again."""
    model = one_line(view.reported_model or view.model)
    facts = [f"call {view.call}", f"{one_line(view.provider)} {model}"]
    if view.latency_ms is not None:
        facts.append(duration(view.latency_ms))
    if view.purpose == "agent" and view.input_tokens is not None:
        facts.append(f"{view.input_tokens:,} → {view.output_tokens or 0:,} tokens")
    if view.recorded_in is not None:
        usd = view.cost_then_usd
        cost = "cost unknown" if usd is None else money(usd)
        facts.append(f"answer of {view.recorded_in} ({cost} then)")
    shown = (f"  {', '.join(facts)}", "dim")
    page.line((f"{who:<9}", "bold cyan"), shown, indent=indent, hang=2)
    if view.status is None:
        page.line(("no answer was recorded", "magenta"), indent=indent + 2)
    if view.status == "failed":
        status = f", HTTP {view.http_status}" if view.http_status else ""
        wait = view.retry_in_ms
        then = "." if wait is None else f". Tried again after {duration(wait)}."
        why = bounded(view.error or "", _VALUE, lines=20).rstrip(".")
        failed = (f"{view.error_code}{status}", "magenta")
        page.line(failed, f": {why}{then}", indent=indent + 2, hang=2)


def _write_span(depth: int, span: SpanView, page: Page) -> None:
    """Write a span of an agent's trace; `verbose` adds its input and output."""
    kind = "" if span.kind == "other" else f"{span.kind} "
    facts = [f"{duration(span.duration_ms)}, after {duration(span.start_ms)}"]
    if span.input_tokens is not None:
        facts.append(f"{span.input_tokens:,} → {span.output_tokens or 0:,} tokens")
    name = f"{'  ' * min(depth, _DEEPEST)}{kind}{one_line(span.name or '')}"
    page.line(("span       ", "cyan"), name, (f"  {', '.join(facts)}", "dim"), indent=4, hang=2)
    if span.failed:
        error = bounded(span.message or "failed", _VALUE, lines=20)
        page.line((error, "magenta"), indent=6, hang=2)
    for text in (span.input, span.output) if page.verbose else ():
        if text is not None:
            page.line((bounded(text, _VALUE), "dim"), indent=6, hang=2)


def _write_message(role: str, text: str | None, page: Page) -> None:
    page.blank()
    page.line((role, "bold cyan"), indent=2)
    _write_text("[erased]" if text is None else text, page)


def _write_text(text: str, page: Page) -> None:
    page.line(bounded(text, _TEXT).rstrip("\n"), indent=4)


def _write_error(execution: ExecutionView, of: str, page: Page) -> None:
    if execution.error_code is None:
        return
    page.heading(f"Error{of}")
    message = bounded(execution.error or "", _VALUE, lines=40)
    code = (f"{execution.error_code} ({execution.error_number})", "magenta")
    page.line(code, f": {message}", indent=2, hang=2)
    if execution.hint:
        page.line(bounded(execution.hint, _VALUE, lines=10), indent=4)
    if page.verbose and execution.trace:
        page.line((bounded(execution.trace, _TEXT), "dim"), indent=4)


def _write_assertion(assertion: AssertionView, attempt: AttemptView, page: Page) -> None:
    facts = [place(attempt.execution.file, assertion.line, page.root)]
    if assertion.outcome in (Outcome.INCONCLUSIVE, Outcome.SKIPPED):
        facts.insert(0, assertion.outcome.value)
    if page.verbose:
        facts.append(duration(assertion.duration_ms))
    page.line(
        MARKS[assertion.outcome],
        f" {assertion_name(assertion)}",
        (f"  {assertion.failure_code}" if assertion.failure_code else "", "red"),
        (f"  {', '.join(facts)}", "dim"),
        indent=2,
        hang=2,
    )
    if assertion.message:
        page.line(bounded(assertion.message, _VALUE, lines=20), indent=4)
    page.fields(assertion_fields(assertion), indent=4)
    for found in excerpts_of(assertion, attempt):
        name = f"{one_line(found.name)}: " if found.name else ""
        head = (f"{one_line(found.source)} at {found.start}  {name}", "dim")
        text = "[erased or withheld]" if found.text is None else f"»{one_line(found.text)}«"
        before, after = one_line(found.before[-_CONTEXT:]), one_line(found.after[:_CONTEXT])
        page.line(head, before, (text, "bold red"), after, indent=4, hang=2)
    more = len(assertion.evidence) - EXCERPTS
    if more > 0:
        page.line(f"… and {more} more places", indent=4)
    if page.verbose and assertion.trace:
        page.line((bounded(assertion.trace, _TEXT), "dim"), indent=4)


def why_not_passed(view: RunView, execution: ExecutionView) -> str:
    """Return why an execution did not pass: its error, or the first failed check."""
    last = as_shown(view.attempts(execution))[0][-1]
    wrong = (check.message for check in last.assertions if check.is_wrong and check.message)
    return one_line(last.execution.error or next(wrong, ""), _REASON)
