"""Turns a run into one OpenTelemetry trace.

The root span is the run. Its children are `invoke_agent` spans, one for each attempt at an
execution, with a span for each call and tool call, and an event for each assertion. Attributes
follow the semantic conventions for GenAI; others begin with `kindlm.`. Content is optional.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from kindlm import __version__
from kindlm.cli.otlp_content import Content, Redact, text_lookup
from kindlm.events import load_event
from kindlm.events.codec import Payload
from kindlm.events.execution_events import (
    AgentFailed,
    AgentReplied,
    AgentSent,
    AssertionEvaluated,
    CallAnswered,
    CallFailed,
    ExecutionFinished,
    ExecutionStarted,
    ProviderFailed,
    ProviderRequested,
    ProviderResponded,
    ToolCalled,
    ToolSimulated,
)
from kindlm.events.run import SuiteStarted
from kindlm.gateway.upstreams import WIRES, sent_body
from kindlm.history.run_view import RunView
from kindlm.outcome import Outcome, Status
from kindlm.ports import Purpose
from kindlm.telemetry.dialects import PROVIDERS
from kindlm.telemetry.spans import CLIENT, INTERNAL, OutSpan, out_event, out_span, read_pairs
from kindlm.transcript import FinishReason, Message, Role, ToolCall, ToolUse
from kindlm.wires.reading import read_request
from kindlm_store.reading import events_after

_PIECE = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_OF_ATTEMPT = {
    event.type
    for event in (
        ExecutionStarted, ExecutionFinished, ProviderRequested, ProviderResponded, ProviderFailed,
        AgentSent, AgentReplied, AgentFailed, ToolCalled, ToolSimulated, AssertionEvaluated,
    )
}  # fmt: skip

_UNUSED = ("raw", "trace", "expected", "actual", "output", "context", "reported")
"""Texts of events that spans do not contain."""

_FINISH = {FinishReason.MAX_TOKENS: "length", FinishReason.TOOL_CALLS: "tool_call"}
"""Finish reasons by their names in the conventions, if these differ from kindlm's."""

_PROVIDERS = {name: convention for convention, name in reversed(PROVIDERS.items())}
"""Providers by their names in the conventions, if these differ from kindlm's."""


def trace_of_run(db: sqlite3.Connection, run: str, redact: Redact | None) -> Iterator[OutSpan]:
    """Yield the spans of a run, the root span last.

    Ids are hashes of recorded values, so that a run always gives the same trace.

    Args:
        db: A read-only connection in a transaction.
        run: The id of the run.
        redact: Removes secrets from content; None leaves all content out.
    """
    text_of = (lambda _: "") if redact is None else text_lookup(db)
    view, suites, attempts = RunView(db, run), dict[int, str](), dict[str, _Attempt]()
    times, after = list[int](), 0
    while piece := events_after(db, f"run/{run}", after, _PIECE):
        for stored in piece:
            at_ns = (datetime.fromisoformat(stored.at) - _EPOCH) // timedelta(microseconds=1) * 1000
            times = [min(times[0], at_ns), max(times[-1], at_ns)] if times else [at_ns, at_ns]
            if stored.type == SuiteStarted.type:
                suites[stored.data["ordinal"]] = stored.data["suite"]
            if stored.type not in _OF_ATTEMPT or stored.subject is None:
                continue
            used = {key: value for key, value in stored.data.items() if key not in _UNUSED}
            event = load_event(stored.type, used, text_of)
            if isinstance(event, ExecutionStarted):
                number = int(stored.subject.partition(".")[0])
                content = Content() if redact is None else Content.of(view, number, redact)
                suite = suites.get(event.suite, "")
                attempts[stored.subject] = _Attempt(run, number, event, suite, content)
            if (attempt := attempts.get(stored.subject)) is None:
                continue
            attempt.add(event, at_ns)
            times[-1] = max(times[-1], attempt.now_ns)
            if isinstance(event, ExecutionFinished):
                yield from attempts.pop(stored.subject).end(event)
        after = piece[-1].version
    for attempt in attempts.values():
        yield from attempt.end(None)
    yield _root(view, times)


def _root(view: RunView, times: Sequence[int]) -> OutSpan:
    info, status = view.info, view.status
    return out_span(
        (trace_id(view.id), span_id(view.id), None),
        f"kindlm run {view.id}",
        INTERNAL,
        (times[0], times[-1]),
        {
            "kindlm.run.id": view.id,
            "kindlm.run.mode": info.mode,
            "kindlm.run.status": status,
            "kindlm.project": info.project,
            "kindlm.suites": list(info.suites),
            "vcs.ref.head.revision": info.git_commit,
        },
        is_error=status == Status.FAILED,
    )


def resource_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of the resource, including those of `OTEL_RESOURCE_ATTRIBUTES`."""
    kindlm = {"service.name": "kindlm", "service.version": __version__}
    return kindlm | (read_pairs(environ.get("OTEL_RESOURCE_ATTRIBUTES", "")) or {})


def trace_id(run: str) -> str:
    """Return the id of the trace of a run: 32 hexadecimal digits."""
    return hashlib.sha256(f"run/{run}".encode()).hexdigest()[:32]


def span_id(run: str, subject: str = "", part: str = "") -> str:
    """Return the id of the span of a run, of an attempt (`17.1`), or of a part of an attempt."""
    return hashlib.sha256(f"span/{run}/{subject}/{part}".encode()).hexdigest()[:16]


@dataclass(slots=True)
class _Open:
    """A call or tool call without an answer yet. `sent` is None if an agent reported it later."""

    sent: ProviderRequested | AgentSent | ToolCalled | None
    id: str
    parent: str
    start_ns: int


@dataclass(eq=False, slots=True)
class _Attempt:
    """Folds the events of one attempt into spans.

    Attributes:
        agent: the parent of spans of calls and tools: the open call to an agent, else the attempt.
        calls: open calls, by number.
        tools: open tool calls, by position.
        messages: the messages up to and including each answer, by the number of the call.
        items: the messages that an agent sent to its model, in the wire format, by the call.
        last: the last request to the target.
        now_ns: the time of the last event. It grows with each event, so that sorting keeps order.
    """

    run: str
    number: int
    started: ExecutionStarted
    suite: str
    content: Content
    id: str = field(init=False)
    agent: str = field(init=False)
    spans: list[OutSpan] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    calls: dict[int, _Open] = field(default_factory=dict)
    tools: dict[int, _Open] = field(default_factory=dict)
    messages: dict[int, tuple[Message, ...]] = field(default_factory=dict)
    items: dict[int, tuple[str, ...]] = field(default_factory=dict)
    last: ProviderRequested | AgentSent | None = None
    model: ProviderRequested | None = None
    calls_models: bool = False
    wrong: str | None = None
    start_ns: int = 0
    now_ns: int = 0

    def __post_init__(self) -> None:
        self.id = self.agent = self._id("")

    def add(self, event: Payload, at_ns: int) -> None:
        """Process the next event."""
        self.now_ns = max(self.now_ns + 1, at_ns)
        match event:
            case ExecutionStarted():
                self.start_ns = self.now_ns
            case AgentSent() | ProviderRequested():
                self._ask(event)
            case CallAnswered() | CallFailed() if event.call in self.calls:
                asked = self.calls.pop(event.call)
                self.agent = self.id if self.agent == asked.id else self.agent
                if isinstance(event, CallFailed):
                    self._failed(asked, event)
                else:
                    self._answered(asked, event)
            case ToolCalled():
                part = f"tool/{event.index}"
                self.tools[event.index] = _Open(event, self._id(part), self.agent, self.now_ns)
            case ToolSimulated():
                if (opened := self.tools.pop(event.index, None)) is not None:
                    called = opened.sent
                    assert isinstance(called, ToolCalled)
                    call = ToolCall.parse(called.call_id, called.name, called.arguments)
                    use = ToolUse(call, event.response, event.rule, tuple(event.problems))
                    self._used(opened, use)
            case AssertionEvaluated():
                self._evaluated(event)

    def end(self, finished: ExecutionFinished | None) -> Iterator[OutSpan]:
        """Yield all spans, including those of calls without an answer."""
        for left in [*self.calls.values(), *self.tools.values()]:
            self._add(left, {"kindlm.status": "unfinished"})
        yield from self.spans
        started = self.started
        status = "unfinished" if finished is None else finished.status.value
        code = finished.error_code if finished else None
        source, _, attempt = (started.source or "").rpartition(".")
        run, _, number = source.rpartition("-")
        conversation = self._history(self.last) if self.last else started.messages
        talk = [
            each for each in conversation if each.role in (Role.USER, Role.ASSISTANT) and each.text
        ]
        answer = [each for each in talk[-1:] if each.role is Role.ASSISTANT]
        yield out_span(
            (trace_id(self.run), self.id, span_id(self.run)),
            f"invoke_agent {started.target} ({started.test})",
            INTERNAL,
            (self.start_ns, self.now_ns),
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": started.target,
                "gen_ai.conversation.id": f"{self.run}-{self.number}",
                "gen_ai.provider.name": self.model and _provider(self.model),
                "gen_ai.request.model": self.model and self.model.model,
                "error.type": code or (self.wrong if status == Status.FAILED else None),
                "kindlm.run.id": self.run,
                "kindlm.execution": self.number,
                "kindlm.suite": self.suite,
                "kindlm.test": started.test,
                "kindlm.target": started.target,
                "kindlm.repeat": started.repeat,
                "kindlm.attempt": started.attempt,
                "kindlm.retried": True if finished and finished.retried else None,
                "kindlm.status": status,
                "kindlm.score": finished and finished.score,
                "kindlm.cost_usd": finished and finished.cost_usd,
                "gen_ai.system_instructions": self.content.instructions(_system(conversation)),
                "gen_ai.input.messages": self.content.messages(talk[: len(talk) - len(answer)]),
                "gen_ai.output.messages": self.content.messages(answer, "stop"),
            },
            is_error=status in (Status.FAILED, Status.ERRORED),
            message=self.content.text(finished.error if finished else None),
            events=self.evaluations,
            links=[(trace_id(run), span_id(run, f"{number}.{attempt}"))] if run else (),
        )

    def _ask(self, sent: AgentSent | ProviderRequested) -> None:
        purpose = Purpose.TEST if isinstance(sent, AgentSent) else sent.purpose
        if purpose == Purpose.TEST:
            self.last = sent
        if isinstance(sent, ProviderRequested):
            if purpose == Purpose.TEST:
                self.model = self.model or sent
            self.calls_models |= purpose == Purpose.AGENT
            self.items[sent.call] = (*self.items.get(sent.base or 0, ()), *sent.items)
        self.messages[sent.call] = (*self.messages.get(sent.after or 0, ()), *sent.messages)
        below = self.agent if purpose == Purpose.AGENT else self.id
        opened = _Open(sent, self._id(f"call/{sent.call}"), below, self.now_ns)
        self.calls[sent.call] = opened
        if isinstance(sent, AgentSent):
            self.agent = opened.id

    def _failed(self, asked: _Open, event: CallFailed) -> None:
        attributes: dict[str, Any] = {
            "error.type": event.error_code,
            "http.response.status_code": event.status,
            "gen_ai.response.model": event.model,
            "gen_ai.usage.input_tokens": event.input_tokens,
            "gen_ai.usage.output_tokens": event.output_tokens,
            "kindlm.cost_usd": event.cost_usd,
        }
        self._add(asked, attributes, is_error=True, message=self.content.text(event.message))

    def _answered(self, asked: _Open, event: CallAnswered) -> None:
        finish, calls = None, tuple[ToolCall, ...]()
        if isinstance(event, ProviderResponded):
            finish, calls = event.finish_reason, tuple(event.tool_calls)
        elif isinstance(event, AgentReplied):
            for placed in event.tool_calls:
                if not placed.simulated:
                    self.now_ns += 1
                    opened = _Open(None, self._id(f"tool/{placed.index}"), asked.id, self.now_ns)
                    self._used(opened, placed.use)
            self.now_ns += 1
        answer = Message(Role.ASSISTANT, event.text, tool_calls=calls)
        reason = finish and _FINISH.get(finish, finish.value)
        # If calls to the agent's models are recorded, these have the tokens and costs.
        counts = not (self.calls_models and isinstance(event, AgentReplied))
        self._add(
            asked,
            {
                "gen_ai.response.model": event.model,
                "gen_ai.response.finish_reasons": [reason] if reason else None,
                "gen_ai.usage.input_tokens": event.input_tokens if counts else None,
                "gen_ai.usage.output_tokens": event.output_tokens if counts else None,
                "kindlm.cost_usd": event.cost_usd if counts else None,
                "kindlm.latency_ms": event.latency_ms,
                "kindlm.recorded_in": event.recorded_in,
                "gen_ai.output.messages": self.content.messages([answer], reason or "stop"),
            },
        )
        self.messages[event.call] += (answer,)

    def _used(self, opened: _Open, use: ToolUse) -> None:
        call = use.call
        arguments = call.arguments if call.malformed is None else call.malformed
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call.id or None,
            "kindlm.tool.result_from": use.rule,
            "kindlm.tool.problems": [problem.kind.value for problem in use.problems] or None,
            "gen_ai.tool.call.arguments": self.content.json(arguments),
            "gen_ai.tool.call.result": self.content.json(use.response),
        }
        self._add(opened, attributes, name=f"execute_tool {call.name}")

    def _evaluated(self, event: AssertionEvaluated) -> None:
        result = event.result
        if result.outcome is Outcome.FAILED and not event.advisory:
            self.wrong = self.wrong or result.failure_code
        attributes = {
            "gen_ai.evaluation.name": result.kind,
            "gen_ai.evaluation.score.value": result.score,
            "gen_ai.evaluation.score.label": result.outcome.value,
            "gen_ai.evaluation.explanation": self.content.text(result.reasoning or result.message),
            "kindlm.label": self.content.text(result.label),
            "kindlm.failure_code": result.failure_code,
            "kindlm.threshold": result.threshold,
            "kindlm.advisory": event.advisory or None,
        }
        self.evaluations.append(out_event("gen_ai.evaluation.result", self.now_ns, attributes))

    def _add(
        self, opened: _Open, attributes: dict[str, Any], *, name: str = "", **more: Any
    ) -> None:
        sent, kind, asked = opened.sent, INTERNAL, dict[str, Any]()
        if isinstance(sent, ToolCalled):
            name = f"execute_tool {sent.name}"
        elif sent is not None:
            name, asked = self._asked(sent)
            kind = CLIENT
        ids = (trace_id(self.run), opened.id, opened.parent)
        times = (opened.start_ns, self.now_ns)
        self.spans.append(out_span(ids, name, kind, times, asked | attributes, **more))

    def _asked(self, sent: ProviderRequested | AgentSent) -> tuple[str, dict[str, Any]]:
        """Return name and attributes of a call's span, as far as the request has them."""
        conversation = self._history(sent) if self.content.redact else ()
        others = [message for message in conversation if message.role is not Role.SYSTEM]
        common = {
            "kindlm.call": sent.call,
            "kindlm.try": sent.attempt if sent.attempt > 1 else None,
            "gen_ai.system_instructions": self.content.instructions(_system(conversation)),
            "gen_ai.input.messages": self.content.messages(others),
        }
        if isinstance(sent, AgentSent):
            return f"invoke_agent {sent.agent}", {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": sent.agent,
                "kindlm.adapter": sent.adapter,
                **common,
            }
        tools = self.started.tools if sent.purpose == Purpose.TEST else None
        embeds = sent.purpose == Purpose.DRIFT or (sent.path or "").endswith("/embeddings")
        operation = "embeddings" if embeds else "chat"
        return f"{operation} {sent.model}", {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": _provider(sent),
            "gen_ai.request.model": sent.model,
            **{f"gen_ai.request.{name}": value for name, value in sent.parameters.items()},
            "kindlm.purpose": sent.purpose,
            **common,
            "gen_ai.tool.definitions": self.content.definitions(tools),
        }

    def _history(self, sent: ProviderRequested | AgentSent) -> Sequence[Message]:
        """Return all messages of a request, including earlier ones of the conversation."""
        if isinstance(sent, ProviderRequested) and (wire := WIRES.get(sent.path or "")):
            body = sent_body(sent.path or "", sent.body or "{}", self.items[sent.call])
            return read_request(wire, body if isinstance(body, dict) else {}).messages
        if sent.after is None:
            return self.messages[sent.call]
        # After the first answer, which includes it, a prefill is no message of its own.
        first = [m for m in self.started.messages if not (m.prefill and sent.after)]
        return [*first, *self.messages[sent.call]]

    def _id(self, part: str) -> str:
        return span_id(self.run, f"{self.number}.{self.started.attempt}", part)


def _system(messages: Iterable[Message]) -> str:
    return "\n".join(message.text for message in messages if message.role is Role.SYSTEM)


def _provider(sent: ProviderRequested) -> str:
    return _PROVIDERS.get(sent.provider, sent.provider)
