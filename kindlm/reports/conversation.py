"""Arranges an execution for reading: its figures and assertions, its messages and calls.

Messages and calls are masked.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from itertools import groupby
from typing import Any, NamedTuple

from kindlm.dataclass import dataclass, replace
from kindlm.history.masking import Mask, masked_call, source_text
from kindlm.history.queries import Paid, paid_for_execution
from kindlm.history.rows import (
    AssertionView,
    AttemptView,
    CallView,
    ExecutionView,
    SpanView,
    ToolCallView,
)
from kindlm.history.run_view import RunView
from kindlm.outcome import CheckResult
from kindlm.reports import figures
from kindlm.reports.untrusted import bounded, json_shown, one_line, visible

EXCERPTS = 10
_CONTEXT = 60
_LONG_NUMBER = 30
_VALUE = 2_000


def status_word(execution: ExecutionView) -> str:
    """Return the status of an execution in words, also if it did not finish."""
    return execution.status.value if execution.status else "not finished"


def execution_facts(db: sqlite3.Connection, execution: ExecutionView) -> Iterator[tuple[str, str]]:
    """Yield the figures of an execution, each with its name; safe to print."""
    if execution.attempt > 1:
        yield "attempts", str(execution.attempt)
    if execution.answers:
        yield "responses", f"{execution.answers:,}"
        if execution.latency_ms:
            yield "latency", figures.duration(execution.latency_ms)
    # An execution that errored before any answer has no tokens to show.
    if execution.input_tokens or execution.output_tokens:
        yield "tokens", figures.tokens(execution.input_tokens, execution.output_tokens)
    if execution.cost_then_usd is not None:
        yield "cost when recorded", figures.money(execution.cost_then_usd)
    paid = paid_for_execution(db, execution.id)
    if paid.total_usd:
        yield "cost", figures.cost(paid)
    elif execution.answers and execution.cost_then_usd is None:
        # An imported execution may have a total cost without any recorded call.
        unknown = paid.unknown if paid.total_usd is not None else 0
        paid = Paid(execution.cost_usd, unknown=unknown or execution.cost_usd is None)
        yield "cost", figures.cost(paid)
    if execution.finish_reason:
        yield "finish reason", one_line(execution.finish_reason)


def assertion_name(assertion: AssertionView) -> str:
    """Return the kind and label of an assertion, marked if it is advisory; safe to print."""
    mark = " (advisory)" if assertion.advisory else ""
    if assertion.label in ("", assertion.kind):
        return f"{one_line(assertion.kind)}{mark}"
    if assertion.label.startswith(f"{assertion.kind} #"):  # one of several without labels
        return f"{one_line(assertion.label)}{mark}"
    return f"{one_line(assertion.kind)} {one_line(assertion.label)}{mark}"


def assertion_fields(assertion: AssertionView) -> list[tuple[str, str]]:
    """Return the details of an assertion, as names and texts that are safe to print."""
    fields = []
    # The threshold of other checks, such as a length or a time, limits `actual`.
    is_scored = assertion.kind in ("judge", "drift", "similar_to")
    if assertion.threshold is not None and assertion.score is not None and is_scored:
        fields.append(("score", figures.score_of_limit(assertion.score, assertion.threshold)))
    elif assertion.score is not None and assertion.kind == "score":  # a number of a scenario
        fields.append(("score", figures.score(assertion.score)))
    fields += values_of(assertion, _VALUE)
    if assertion.reasoning and not is_in_message(assertion.reasoning, assertion.message):
        fields.append(("judge", visible(bounded(assertion.reasoning, 3 * _VALUE, lines=12))))
    return fields


def values_of(assertion: CheckResult, limit: int) -> Iterator[tuple[str, str]]:
    """Yield the expected and the actual value, unless the message contains them."""
    for name, value in (("expected", assertion.expected), ("actual", assertion.actual)):
        if value is not None and not is_in_message(value, assertion.message):
            yield name, json_shown(value, limit)


def is_in_message(value: Any, message: str) -> bool:
    """Return whether a message contains every part of a JSON value, except its position."""
    match value:
        case dict() if value:
            parts = (item for key, item in value.items() if key not in ("index", "source"))
            return all(is_in_message(part, message) for part in parts)
        case list() if value:
            return all(is_in_message(part, message) for part in value)
        case str():
            return json.dumps(value, ensure_ascii=False)[1:-1] in message
    plain = json.dumps(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Messages show numbers with separators, unless they are long.
    shown = f"{value:,.10g}" if is_number and len(plain) < _LONG_NUMBER else plain
    words = "|".join(map(re.escape, (plain, shown)))
    return re.search(rf"(?<![\w.])(?:{words})(?![\w]|\.\d)", message) is not None


class Excerpt(NamedTuple):
    """The evidence of an assertion: a text of `source` from its character `start` on.

    `before` and `after` are the surrounding characters, "" for a copy in the assertion. `name` is
    what was found, such as `email`. `text` is None if it was erased or withheld.
    """

    source: str
    start: int
    name: str | None
    text: str | None
    before: str = ""
    after: str = ""

    @property
    def where(self) -> str:
        """The source, the position in it, and the name of what was found."""
        return f"{self.source} at {self.start}{f' {self.name}' if self.name else ''}"


def excerpts_of(assertion: AssertionView, attempt: AttemptView) -> Iterator[Excerpt]:
    """Yield the first `EXCERPTS` pieces of evidence of an assertion."""
    for evidence in assertion.evidence[:EXCERPTS]:
        start, end, kept = evidence.start, evidence.end, evidence.excerpt
        excerpt = Excerpt(evidence.source, start, evidence.name, kept)
        if kept is None and (text := source_text(evidence.source, attempt)) is not None:
            before, after = text[max(start - _CONTEXT, 0) : start], text[end : end + _CONTEXT]
            excerpt = excerpt._replace(text=text[start:end], before=before, after=after)
        yield excerpt


class ShownMessage(NamedTuple):
    """A message as it may be shown; `text` is None if it was erased."""

    role: str
    text: str | None


def tools_offered(definitions: Any, mask: Mask) -> list[dict[str, Any]]:
    """Return the tool definitions of an execution, masked; a note on erased ones is a name."""
    if isinstance(definitions, str):
        return [{"name": definitions}]
    listed = definitions if isinstance(definitions, list) else ()
    return [mask.value(tool) for tool in listed if isinstance(tool, dict)]


@dataclass(slots=True)
class Called:
    """A call to the target or a judge, masked, except the messages of `view`.

    `sent` are its new messages. `made` are the model calls that the agent made to answer it.
    `spans` are those of its trace, each with its depth in the tree.
    """

    view: CallView
    sent: tuple[ShownMessage, ...]
    tools: tuple[ToolCallView, ...]
    spans: tuple[tuple[int, SpanView], ...]
    made: list[Called] = field(default_factory=list)

    @property
    def judging(self) -> bool:
        """Whether it does not call the target, but a judge, an embedder or a simulated user."""
        return self.view.purpose != "test"

    @property
    def commanded(self) -> bool:
        """Whether the target is a program, which gets no message but its command line."""
        return self.view.provider == "command"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at an execution, with the messages before its first call and its calls."""

    number: int
    first: tuple[ShownMessage, ...]
    calls: list[Called]

    @property
    def talk(self) -> list[Called]:
        """The calls to the target."""
        return [call for call in self.calls if not call.judging]

    @property
    def judgements(self) -> list[Called]:
        """The calls to judges."""
        return [call for call in self.calls if call.judging]


def attempts_of(
    view: RunView, execution: ExecutionView, ended: Iterable[AttemptView], mask: Mask
) -> list[Attempt]:
    """Return the attempts at an execution, masked.

    `ended` are those that ended, including attempts without any call.
    """
    calls, spans = view.calls(execution), view.spans(execution)
    tools = view.tool_calls(execution, all_attempts=True)
    # The recorded message to a program is empty: it gets none.
    first = tuple(
        _message(message, mask)
        for message in view.first_messages(execution)
        if message["text"] != "" or not any(call.provider == "command" for call in calls)
    )
    numbers = {*(call.attempt for call in calls), *(attempt.number for attempt in ended)}
    attempts = {number: Attempt(number, first, []) for number in sorted(numbers)}
    for call in calls:
        attempt, shown = attempts[call.attempt], _called(call, tools, spans, mask)
        # A model call of an agent belongs to the call that the agent was answering.
        is_nested = call.purpose == "agent" and attempt.talk
        (attempt.talk[-1].made if is_nested else attempt.calls).append(shown)
    return list(attempts.values())


def pretty(value: Any) -> str:
    """Return a JSON value with indentation, a string unchanged."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=2)


def highlighted(text: str, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of a text, each with whether it lies in one of the ranges.

    Ranges may overlap and extend beyond the text.
    """
    marked = {place for start, end in ranges for place in range(start, min(end, len(text)))}
    for is_marked, places in groupby(range(len(text)), marked.__contains__):
        yield "".join(text[place] for place in places), is_marked


def _message(message: dict[str, Any], mask: Mask) -> ShownMessage:
    role = f"{message['role']} (prefill)" if message.get("prefill") else str(message["role"])
    return ShownMessage(role, mask.wire_text(message["text"]))


def _called(
    call: CallView, tools: Sequence[ToolCallView], spans: Sequence[SpanView], mask: Mask
) -> Called:
    used_tools = [
        used
        for used in tools
        if call.purpose == "test" and (used.attempt, used.call) == (call.attempt, call.call)
    ]
    shown_spans, depths = list[tuple[int, SpanView]](), dict[str | None, int]()
    for span in spans:
        if (span.attempt, span.call) == (call.attempt, call.call):
            depths[span.id] = depths.get(span.parent, -1) + 1
            shown = replace(
                span,
                name=mask.text(span.name),
                message=mask.text(span.message),
                input=mask.wire_text(span.input),
                output=mask.wire_text(span.output),
            )
            shown_spans.append((depths[span.id], shown))
    parsed = [call.text, call.error, *((used.arguments, used.response) for used in used_tools)]
    # Tool results are shown with their tool calls, and the target's answers with theirs.
    shown_elsewhere = ("tool", "assistant") if call.purpose == "test" else ()
    return Called(
        replace(
            call,
            text=mask.text(call.text),
            error=mask.text(call.error),
            raw=mask.wire_text(call.raw, *parsed),
        ),
        sent=tuple(
            _message(message, mask)
            for message in call.messages
            if message["role"] not in shown_elsewhere
        ),
        tools=tuple(masked_call(used, mask) for used in used_tools),
        spans=tuple(shown_spans),
    )
