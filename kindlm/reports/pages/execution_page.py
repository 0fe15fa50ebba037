"""The page of an execution: why it came out as it did, and the conversation, to be read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime

from markupsafe import Markup

from kindlm.history.masking import mask_of, masked
from kindlm.history.queries import Paid, paid_for_execution
from kindlm.history.rows import AssertionView, CallView, ExecutionView
from kindlm.history.run_view import RunView
from kindlm.outcome import Outcome
from kindlm.reports.conversation import (
    Called,
    attempts_of,
    earlier_attempts,
    excerpts_of,
    highlighted,
    pretty,
    status_word,
)
from kindlm.reports.facts import assertion_fields, assertion_name
from kindlm.reports.figures import cost, duration, money
from kindlm.reports.pages.charts import Bar, waterfall
from kindlm.reports.pages.html_document import Document
from kindlm.reports.untrusted import one_line
from kindlm.wording import count

_SPANS = 200
_INDENT = "\u00a0\u00a0"
_DEEPEST = 6
_LONGEST_NAME = 40


def execution_page(db: sqlite3.Connection, wanted: str) -> Document | None:
    """Return the page of an execution by its id, None if there is no such execution."""
    view = RunView(db, wanted.rpartition("-")[0])
    execution = view.execution(wanted)
    if execution is None:
        return None
    attempts = view.attempts(execution)
    tools, mask = attempts[-1].tool_calls, mask_of(attempts)
    shown = [masked(assertion, mask) for assertion in attempts[-1].assertions]
    calls, repeats = view.calls(execution), view.repeats(execution)
    decided = (Outcome.PASSED, Outcome.SKIPPED)
    return Document(
        "execution.html",
        f"{one_line(execution.test)} · {one_line(execution.target)} · {execution.run}",
        {
            "execution": execution,
            "repeats": repeats,
            "before": next((r for r in reversed(repeats) if r.repeat < execution.repeat), None),
            "after": next((r for r in repeats if r.repeat > execution.repeat), None),
            "status": status_word(execution),
            "error": mask.text(execution.error),
            "trace": mask.text(execution.trace),
            "warnings": [mask.text(warning) for warning in execution.warnings],
            "facts": list(_facts(execution, paid_for_execution(db, execution.id))),
            "wrong": [each for each in shown if each.is_wrong],
            "right": [each for each in shown if each.outcome in decided],
            "advice": [each for each in shown if not each.is_wrong and each.outcome not in decided],
            "attempts": attempts_of(
                view.first_messages(execution),
                calls,
                view.tool_calls(execution, all_attempts=True),
                [attempt.number for attempt in attempts],
                mask,
                view.spans(execution),
            ),
            "traced": _traced,
            "earlier": earlier_attempts(attempts, mask),
            "output": execution.output,
            "waterfall": _waterfall(calls),
            "reviews": view.reviews(execution),
            "excerpts": lambda assertion: list(excerpts_of(assertion, execution, tools, mask)),
            "fields": lambda assertion: assertion_fields(assertion, limit=2_000),
            "marked": lambda text: list(highlighted(text, _ranges(shown))),
            "name": assertion_name,
            "request": _request,
        },
        styles=("charts", "execution"),
    )


def _traced(call: Called) -> Markup:
    """Return a bar for each span of an agent's trace, those below another one indented."""
    bars = [
        Bar(
            f"{_INDENT * min(depth, _DEEPEST)}{span.kind if span.kind != 'other' else ''} "
            f"{one_line(span.name or '')[:_LONGEST_NAME]}{', failed' if span.failed else ''}",
            "failed" if span.failed else span.kind,
            span.start_ms,
            span.duration_ms,
        )
        for depth, span in call.spans[:_SPANS]
    ]
    return waterfall(bars, "What the agent did, and when")


def _request(call: Called) -> str:
    """Return a request as JSON for people: the messages are those that it sent anew."""
    view = call.view
    request = {
        "provider": view.provider,
        "model": view.model,
        "parameters": view.parameters,
        "continues": view.after or None,
        "new messages": [{"role": said.role, "text": said.text} for said in call.sent],
    }
    return pretty(request)


def _facts(execution: ExecutionView, paid: Paid) -> Iterator[tuple[str, str]]:
    if execution.answers:
        yield "Answers", f"{execution.answers:,}"
        if execution.latency_ms:
            yield "Time of answers", duration(execution.latency_ms)
    # An execution that errored before any answer has no tokens to show.
    if execution.input_tokens or execution.output_tokens:
        tokens = f"{execution.input_tokens or 0:,} in, {execution.output_tokens or 0:,} out"
        yield "Tokens", tokens
    if execution.cost_then_usd is not None:
        yield "Cost when recorded", money(execution.cost_then_usd)
    if paid.total_usd:
        yield "Cost", f"{cost(paid)}{' + unknown' if paid.unknown else ''}"
    elif execution.answers and execution.cost_then_usd is None:
        # Of an imported one no call may be known, but what all of them cost.
        usd = execution.cost_usd
        yield "Cost", "unknown" if usd is None else money(usd)
    if execution.finish_reason:
        yield "Finish reason", one_line(execution.finish_reason)
    if execution.attempt > 1:
        yield "Attempts", count(execution.attempt, "attempt")


def _ranges(assertions: Sequence[AssertionView]) -> list[tuple[int, int]]:
    """Return where the output holds what assertions that are not met point at."""
    return [
        (evidence["start"], evidence["end"])
        for assertion in assertions
        if assertion.is_wrong
        for evidence in assertion.evidence
        if evidence["source"] == "output"
    ]


def _waterfall(calls: Sequence[CallView]) -> Markup | None:
    """Return a bar for each call of the last attempt, from its first call on."""
    last = max((call.attempt for call in calls), default=0)
    of_last = [call for call in calls if call.attempt == last][:_SPANS]
    if not of_last:
        return None
    first = datetime.fromisoformat(of_last[0].requested_at)
    bars = []
    for call in of_last:
        began = (datetime.fromisoformat(call.requested_at) - first).total_seconds() * 1000
        failed = call.status != "responded"
        who = "" if call.purpose == "test" else f", {call.purpose}"
        bars.append(
            Bar(
                f"call {call.call}{who}{', failed' if failed else ''}",
                "failed" if failed else call.purpose,
                max(began, 0.0),  # a clock that was set back must not draw a bar outside
                call.latency_ms or 0.0,
                call.retry_in_ms or 0.0,
            )
        )
    return waterfall(bars, "When each call was made, and how long it took")
