"""Assigns the spans of agents to messages, and decides whether all of them have arrived.

Each attempt at an execution has its own trace, and each message its own span in it. The agent gets
the ids of both as `traceparent`. The spans of a message are complete when a span has arrived that
encloses the whole answer, and no parent is missing. Exporters send spans in the order of their
ends, so all spans within the enclosing one have arrived before it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from kindlm.dataclass import replace
from kindlm.events.execution_events import AgentTraced, TracedSpan
from kindlm.ports import CallDesk, Observation, Seen
from kindlm.programs import past_proxies
from kindlm.suite import AgentTarget, Command
from kindlm.telemetry import dialects
from kindlm.telemetry.dialects import Kind
from kindlm.telemetry.receiver import receiving, take_own_spans, watch_own_spans
from kindlm.telemetry.spans import Span
from kindlm.telemetry.trace_reading import LIMITS, in_order, read_trace, why_cut
from kindlm.trace_context import trace_id
from kindlm.transcript import Cost, ToolCall, Usage, sum_of
from kindlm.wording import count

MAX_SPANS = 20_000
MAX_TRACE_BYTES = 50_000_000
_MAX_RECORDED = 500
_MAX_TEXT = 20_000
_LONGEST_NAME = 200
_LONGEST_MS = 7 * 24 * 3600 * 1000
_CALLS = (Kind.CHAT, Kind.TOOL)
_SETTLING = 5
"""kindlm waits so many times as long as the time from the end of the last span to the answer."""
_EXPORT_DELAY_MS = 100


@asynccontextmanager
async def observing_otlp(run: str, environ: Mapping[str, str]) -> AsyncIterator[OtlpObserver]:
    """Receive the spans of agents for a run while the context is open."""
    observer, loop = OtlpObserver(run, environ=environ), asyncio.get_running_loop()

    def take_here(span: Span) -> None:
        with suppress(RuntimeError):  # after the run, the loop is closed, but an agent may work on
            loop.call_soon_threadsafe(observer.take, [span], "")

    end = take_own_spans(take_here)
    try:
        async with receiving(observer) as url:
            observer.url = url
            yield observer
    finally:
        end()


@dataclass(slots=True)
class OtlpObserver:
    """Implements `ports.Observer`; `url` is the address for exporters, `environ` that of the run.

    `over` are the traces and places of conversations that have ended. The counters are for `notes`:
    spans and calls in unknown traces, and late spans. `refusals` has the place of each refused
    request, empty if any agent may have sent it, and the reason.
    """

    run: str
    url: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    by_trace: dict[str, TracedConversation] = field(default_factory=dict)
    by_place: dict[str, TracedConversation] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    unknown_spans: int = 0
    unknown_calls: int = 0
    late_spans: int = 0
    refusals: list[tuple[str, str]] = field(default_factory=list)

    def observe(self, target: AgentTarget | Command, desk: CallDesk) -> Observation | None:
        """Return the observation of a conversation; None for an agent without `telemetry: otlp`."""
        if isinstance(target, Command) or target.telemetry is None:
            return None
        return TracedConversation(self, target, desk)

    def exporting(self, place: str = "") -> dict[str, str]:
        """Return variables that let a program export all spans here, without delay."""
        url = f"{self.url}/{place}" if place else self.url
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            # The Python SDK supports no other format over HTTP.
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            # The environment of the run may have these, and they take precedence.
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{url}/v1/traces",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            "OTEL_BSP_SCHEDULE_DELAY": str(_EXPORT_DELAY_MS),
            "OTEL_TRACES_SAMPLER": "parentbased_always_on",
            **LIMITS,
            **past_proxies(self.environ),
        }

    def take(self, spans: Sequence[Span], place: str) -> None:
        """Assign spans to conversations; `place` is the place that they were sent to."""
        for span in spans:
            conversation = self.by_trace.get(span.trace) or self.by_place.get(place)
            if conversation is not None:
                conversation.take(span)
            elif span.trace in self.over:
                self.late_spans += 1
            else:
                self.unknown_spans += 1
                self.unknown_calls += dialects.kind_of(span) in _CALLS

    def refused(self, why: str, place: str) -> None:
        """Take note of an unreadable request that was sent to a place."""
        is_known = place in self.by_place or place in self.over
        self.refusals.append((place if is_known else "", why))

    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield the warnings at the end of a run, each with its hint."""
        if self.unknown_spans:
            message = f"{count(self.unknown_spans, 'span')} arrived in traces that kindlm did not "
            message += "start. kindlm cannot assign them to an execution."
            yield message, "A thread or queue of the agent probably drops the header traceparent."
        if self.late_spans:
            message = f"{count(self.late_spans, 'span')} arrived after the end of their execution."
            yield message, _EXPORT_SOON
        if self.refusals:
            message = f"{count(len(self.refusals), 'request')} with spans could not be read, "
            yield f"{message}the last one for this reason: {self.refusals[-1][1]}.", _FORMS


@dataclass(eq=False)
class TracedConversation:
    """Implements `ports.Observation`.

    `sent` is the id of kindlm's span for the current message. `root` is the one for the whole
    conversation, used by a program that is started for it. Such a program exports to its own
    `place`; all spans sent there belong to this conversation, whatever their trace.

    `_known` has all spans by id. `_new` are those that no answer has taken yet, since spans of a
    failed try belong to the next answer; those from `_begun` on arrived since the message was sent.
    `_messages` are kindlm's spans, each with whether its message was answered. `_calls` are the
    tool calls for the answers so far.
    """

    observer: OtlpObserver
    target: AgentTarget
    desk: CallDesk
    place: str = field(default_factory=lambda: secrets.token_hex(16))
    root: str = field(default_factory=lambda: secrets.token_hex(8))
    sent: str = field(default_factory=lambda: secrets.token_hex(8))
    call: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _known: dict[str, Span] = field(default_factory=dict)
    _new: list[Span] = field(default_factory=list)
    _begun: int = 0
    _messages: dict[str, bool] = field(default_factory=dict)
    _calls: list[ToolCall] = field(default_factory=list)
    _answered_ns: int = 0
    _size: int = 0
    _is_cut: bool = False
    _is_ambiguous: bool = False
    _unknown_before: int = 0
    _refused_before: int = 0

    def __post_init__(self) -> None:
        self.trace = trace_id(self.observer.run, self.desk.subject)
        self.observer.by_trace[self.trace] = self.observer.by_place[self.place] = self
        self._messages[self.sent] = True  # for spans before the first message

    @property
    def environ(self) -> Mapping[str, str]:
        """Variables for a program that runs for this conversation alone."""
        parent = {"TRACEPARENT": f"00-{self.trace}-{self.root}-01"}
        return self.observer.exporting(self.place) | parent

    @property
    def headers(self) -> Mapping[str, str]:
        """The header `traceparent`, with the trace and kindlm's span for the message."""
        return {"traceparent": f"00-{self.trace}-{self.sent}-01"}

    async def begin(self, call: int) -> None:
        """Begin to observe: a message is about to be sent, as this call of the attempt."""
        if self.target.instance is not None:
            watch_own_spans()
        if self._messages[self.sent]:
            self._unknown_before = self.observer.unknown_calls
            self._refused_before = len(self.observer.refusals)
        self.call, self.sent = call, secrets.token_hex(8)
        self._messages[self.sent], self._begun = False, len(self._new)

    def take(self, span: Span) -> None:
        """Take a span; ignore a repeated one."""
        self.arrived.set()
        if (known := self._known.get(span.id)) is not None:
            look = (span.name, span.start_ns, span.end_ns)
            self._is_ambiguous |= look != (known.name, known.start_ns, known.end_ns)
            return
        self._size += span.size
        self._is_cut |= len(self._known) >= MAX_SPANS or self._size > MAX_TRACE_BYTES
        if not self._is_cut:
            self._known[span.id] = span
            self._new.append(span)

    async def seen(self) -> Seen:
        """Wait until the spans of the message are complete; return their content."""
        self._answered_ns = time.time_ns()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.target.telemetry_wait_ms / 1000):
                while not self._is_cut and self._incomplete() is not None:
                    self.arrived.clear()
                    unsettled = (self._settled_ns() or 0) - time.time_ns()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(unsettled / 1e9 if unsettled > 0 else None):
                            await self.arrived.wait()
        incomplete, spans = self._incomplete(), self._take_out()
        # In a thread, since messages of models can be long.
        reading = await asyncio.to_thread(read_trace, spans, self._calls)
        self._calls += [use.call for use in reading.tool_uses]
        if spans:
            self.desk.record(_event(self.call, spans))
        lost = incomplete or self._meanwhile() or why_cut(spans)
        calls = reading.model_calls
        price = self.desk.price
        spent = [(c.usage, price(c.provider, c.model, c.usage)) for c in calls]
        # The sum is unknown if spans of model calls may be missing.
        usage, cost = sum_of(spent) if lost is None else (Usage(), Cost())
        return Seen(
            tool_uses=reading.tool_uses,
            usage=usage,
            cost=cost if calls else None,
            model=calls[-1].model if calls else None,
            missing=lost or reading.missing,
        )

    async def trouble(self) -> None:
        """Return None: kindlm does not wait for the spans of a failed message."""

    def close(self) -> str | None:
        """End the observation; see `ports.Observation`."""
        observer = self.observer
        del observer.by_trace[self.trace], observer.by_place[self.place]
        observer.over |= {self.trace, self.place}
        if not self._messages[self.sent]:
            return None  # the spans belong to a message that failed
        observer.late_spans += len(self._new)
        late = sum(dialects.kind_of(span) is Kind.TOOL for span in self._new)
        if not late:
            return None
        return (
            f"The agent made {count(late, 'tool call')} after its last answer, which no check saw."
        )

    def _incomplete(self) -> str | None:
        """Return why spans of tool calls may be missing, None if the spans are complete."""
        wait = f"within {self.target.telemetry_wait_ms:,} ms"
        if self._is_cut:
            return f"The trace has more than {MAX_SPANS:,} spans or {MAX_TRACE_BYTES:,} bytes."
        if self._is_ambiguous:
            return "Two spans of the trace have the same id, so one of them was not read."
        if not self._new:
            refused = self._refusals()
            how = _EXPORT if self.target.instance is None else _EXPORT_HERE
            return f"No span of the agent arrived {wait}, so its tool calls are unknown. {how}" + (
                f" A request with spans could not be read: {refused[-1]}" if refused else ""
            )
        if lacking := self._lacking():
            return (
                f"Spans arrived, but {count(len(lacking), 'parent')} of theirs did not "
                f"{wait}, so spans of tool calls may be missing, too. {_EXPORT_SOON}"
            )
        settled = self._settled_ns()
        if settled is None or settled > time.time_ns():
            return (
                f"Spans arrived, but none {wait} that encloses the whole answer, so spans of tool "
                "calls may be missing. Instrument the server, or open a span around the answer, "
                "below the one in the header traceparent (in programs: the variable TRACEPARENT). "
                "A program has to flush its spans before it ends. " + _EXPORT_SOON
            )
        return None

    def _lacking(self) -> set[str]:
        """Return the parents of new spans that have not arrived."""
        parents = {span.parent for span in self._new}
        return parents - self._known.keys() - self._messages.keys() - {"", self.root}

    def _settled_ns(self) -> int | None:
        """Return the time until which further spans may arrive; None without an enclosing span.

        Spans outside of the enclosing one were made between its end and the answer. Their export
        can take a multiple of that time, between two exports or on a busy host. Spans in other
        traces, as of MLflow, have an exporter of their own, which others do not wait for.
        """
        tops, loose = list[Span](), list[Span]()
        for span in self._new[self._begun :]:
            if span.parent not in ("", self.sent, self.root):
                continue
            # A call, or a run of an agent, does not enclose the answer: others may follow it.
            if dialects.kind_of(span) is not Kind.OTHER:
                loose.append(span)
            elif span.parent and not span.is_outgoing and not dialects.is_of_framework(span):
                tops.append(span)
        last = max(tops, key=lambda span: span.end_ns, default=None)
        if last is None or not all(
            last.start_ns <= each.start_ns and each.end_ns <= last.end_ns for each in loose
        ):
            return None
        open_ns = max(self._answered_ns - last.end_ns, 0)
        if any(span.trace != self.trace for span in self._new[self._begun :]):
            open_ns = max(open_ns, _EXPORT_DELAY_MS * 1_000_000)
        return self._answered_ns + _SETTLING * open_ns

    def _take_out(self) -> list[Span]:
        """Return the new spans, without late ones of earlier messages."""
        tops = dict[str, str]()  # the nearest ancestor of each span that is not a span here
        for span in in_order(self._known.values()):
            tops[span.id] = tops.get(span.parent, span.parent)
        new = self._new
        spans = [span for span in new if not self._messages.get(tops[span.id])]
        self.observer.late_spans += len(new) - len(spans)
        for span in new:
            self._known[span.id] = replace(span, attributes={}, events=())  # they can be large
        self._new, self._begun = [], 0
        self._messages = dict.fromkeys(self._messages, True)
        return spans

    def _meanwhile(self) -> str | None:
        """Return what arrived elsewhere since the message was sent, and may belong to it."""
        if unknown := self.observer.unknown_calls - self._unknown_before:
            return (
                f"Meanwhile, {count(unknown, 'span')} of models or tools arrived in traces that "
                "kindlm did not start: they may be of this execution. Pass the header traceparent "
                "on to all that the agent does, also in threads and queues."
            )
        if refused := self._refusals(self._refused_before):
            return (
                f"Meanwhile, {count(len(refused), 'request')} with spans could not be read, so "
                f"spans of tool calls may be missing: {refused[-1]}. {_FORMS}"
            )
        return None

    def _refusals(self, since: int = 0) -> list[str]:
        """Return why requests that may be of this conversation were refused."""
        refused = self.observer.refusals[since:]
        return [why for place, why in refused if place in ("", self.place)]


def _event(call: int, spans: Sequence[Span]) -> AgentTraced:
    """Return the event of a message's spans, at most the first `_MAX_RECORDED`."""
    ordered = in_order(spans)[:_MAX_RECORDED]
    ids, start = {span.id for span in ordered}, min(span.start_ns for span in spans)
    return AgentTraced(
        call=call,
        spans=[_recorded(span, start, is_below=span.parent in ids) for span in ordered],
        more=len(spans) - len(ordered),
    )


def _recorded(span: Span, start_ns: int, *, is_below: bool) -> TracedSpan:
    kind = dialects.kind_of(span)
    given, got, name = None, None, span.name
    if kind is Kind.TOOL:
        given, got = dialects.arguments(span), dialects.result(span)
        name = dialects.text_fact(span, "tool") or name
    elif kind is Kind.CHAT:
        got = dialects.said(span)
        name = dialects.text_fact(span, "model") or name
    return TracedSpan(
        id=span.id,
        parent=span.parent if is_below else None,
        kind=kind.value,
        name=name[:_LONGEST_NAME],
        start_ms=_ms(span.start_ns - start_ns),
        duration_ms=_ms(span.end_ns - span.start_ns),
        failed=span.is_error,
        message=span.status_message[:_MAX_TEXT] or None,
        input=_text(given),
        output=_text(got),
        input_tokens=dialects.tokens(span, "input tokens") if kind is Kind.CHAT else None,
        output_tokens=dialects.tokens(span, "output tokens") if kind is Kind.CHAT else None,
    )


def _ms(duration_ns: int) -> float:
    return round(min(max(duration_ns, 0) / 1e6, _LONGEST_MS), 3)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value and value[:_MAX_TEXT]
    return json.dumps(value, ensure_ascii=False)[:_MAX_TEXT]


_FORMS = "Export OTLP over HTTP, as protobuf or JSON, 10 MB at most."
_EXPORT_HERE = (
    "It runs in the process of the test: set the global TracerProvider of OpenTelemetry's SDK "
    "before the first message."
)
_EXPORT_SOON = "Set OTEL_BSP_SCHEDULE_DELAY=100 where the agent starts, or raise telemetryWaitMs."
_EXPORT = (
    "Export to the address in OTEL_EXPORTER_OTLP_ENDPOINT, and continue the trace in the "
    f"header traceparent. {_EXPORT_SOON}"
)
