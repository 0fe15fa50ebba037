"""The page of an execution: the reasons for its result, and the conversation."""

from __future__ import annotations

import sqlite3
from datetime import datetime

from markupsafe import Markup

from kindlm.history.masking import as_shown
from kindlm.history.run_view import RunView
from kindlm.outcome import Outcome
from kindlm.reports.conversation import (
    Attempt,
    Called,
    assertion_fields,
    assertion_name,
    attempts_of,
    excerpts_of,
    execution_facts,
    highlighted,
    pretty,
    status_word,
    tools_offered,
)
from kindlm.reports.pages.charts import Bar, waterfall
from kindlm.reports.pages.html_document import Document, PageRequest
from kindlm.reports.untrusted import one_line

# Executions of rescored runs share the conversation of their `source`, and its reviews.
_UNREVIEWED = """
SELECT e.id
  FROM executions this
  JOIN executions e ON e.run = this.run AND e.id <> this.id
 WHERE this.id = :execution AND e.status IN ('passed', 'failed', 'errored')
   AND NOT EXISTS (SELECT * FROM reviews r WHERE r.execution = e.source)
 ORDER BY e.number < this.number, e.number LIMIT 1
"""

_UNMET = (Outcome.FAILED, Outcome.INCONCLUSIVE)
_MOST_BARS = 300
_INDENT = "\u00a0\u00a0"
_DEEPEST = 6
_LONGEST_MODEL = 14


def execution_page(db: sqlite3.Connection, asked: PageRequest) -> Document | None:
    """Return the page of an execution by its id, None if there is no such execution.

    In the query, `reviewed` is the id of the execution that the reader has just reviewed.
    """
    view = RunView(db, asked.name.rpartition("-")[0])
    execution, reviewed = view.execution(asked.name), asked.query.get("reviewed")
    if execution is None:
        return None
    attempts, mask = as_shown(view.attempts(execution))
    last = attempts[-1]
    assertions = last.assertions
    wrong = [assertion for assertion in assertions if assertion.is_wrong]
    evidence = [found for assertion in wrong for found in assertion.evidence]
    highlights = [(found.start, found.end) for found in evidence if found.source == "output"]
    conversations = attempts_of(view, execution, attempts, mask)
    return Document(
        "execution.html",
        f"{one_line(execution.test)} · {one_line(execution.target)} · {execution.run}",
        {
            "execution": last.execution,
            "last": last,
            "repeats": view.repeats(execution.suite_id, execution.test, execution.target),
            "before": view.execution(f"{execution.run}-{execution.number - 1}"),
            "after": view.execution(f"{execution.run}-{execution.number + 1}"),
            "unreviewed": next_unreviewed(db, execution.id),
            "reviewed": view.execution(reviewed) if reviewed else None,
            "status": status_word(execution),
            "facts": list(execution_facts(db, execution)),
            "wrong": wrong,
            "right": [a for a in assertions if a.outcome is Outcome.PASSED],
            "skipped": [a for a in assertions if a.outcome is Outcome.SKIPPED],
            "advice": [a for a in assertions if a.advisory and a.outcome in _UNMET],
            "tools": tools_offered(view.tools(execution), mask),
            "attempts": conversations,
            "earlier": {attempt.number: attempt for attempt in attempts[:-1]},
            "timeline": _timeline(conversations[-1]) if conversations else None,
            "reviews": view.reviews(execution),
            "excerpts": excerpts_of,
            "fields": assertion_fields,
            "marked": lambda text: list(highlighted(text, highlights)),
            "name": assertion_name,
            "request": _request,
        },
        styles=("charts", "runs", "checks", "execution"),
        scripts=("keys",),
    )


def next_unreviewed(db: sqlite3.Connection, execution: str) -> str | None:
    """Return the id of the next execution of the same run that has no review.

    After the last execution of the run comes the first.
    """
    found = db.execute(_UNREVIEWED, {"execution": execution}).fetchone()
    return None if found is None else str(found[0])


def _request(call: Called) -> str:
    """Return a request as readable JSON, with only the messages that it added."""
    view = call.view
    request = {
        "provider": view.provider,
        "model": view.model,
        "parameters": view.parameters,
        "continues": view.after or None,
        "new messages": [{"role": message.role, "text": message.text} for message in call.sent],
    }
    return pretty(request)


def _timeline(attempt: Attempt) -> Markup | None:
    """Return a bar for each call, tool call and span of an attempt, on one time axis.

    Tool calls and spans are indented below their call. The start of a span is relative to its call.
    """
    calls = [called for call in attempt.calls for called in (call, *call.made)]
    bars = list[Bar]()
    for call in calls:
        view, began = call.view, _ms(call.view.requested_at)
        place, failed = f"call-{view.attempt}-{view.call}", view.status != "responded"
        who = "" if view.purpose == "test" else f" {view.purpose}"
        inner = _INDENT if view.purpose == "agent" else ""
        model = one_line(view.model, _LONGEST_MODEL)
        name = f"{inner}call {view.call}{who} {model}{', failed' if failed else ''}"
        kind, took = "failed" if failed else view.purpose, view.latency_ms or 0.0
        bars.append(Bar(name, kind, began, took, place, view.retry_in_ms or 0.0))
        for depth, span in call.spans:
            kind = "failed" if span.failed else span.kind
            words = dict.fromkeys((kind, span.kind, one_line(span.name or "")))
            what = " ".join(word for word in words if word != "other")
            name = f"{_INDENT * min(depth + 1, _DEEPEST)}{what}"
            bars.append(Bar(name, kind, began + span.start_ms, span.duration_ms, place))
        for tool in call.tools:
            if tool.called_at is not None:
                # Only its start is recorded.
                name = f"{_INDENT}tool {one_line(tool.tool)}"
                bars.append(Bar(name, "tool", _ms(tool.called_at), None, place))
    if not bars:
        return None
    return waterfall(bars[:_MOST_BARS], "When each call and tool call started")


def _ms(at: str) -> float:
    return datetime.fromisoformat(at).timestamp() * 1000
