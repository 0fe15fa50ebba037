"""Turns a run into one OpenTelemetry trace.

The root span is the run. Its children are `invoke_agent` spans, one for each attempt at an
execution, with a span for each call and tool call, and an event for each assertion. Attributes
follow the semantic conventions for GenAI; others begin with `kindlm.`. Content is optional.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from kindlm import __version__
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
from kindlm.history.masking import Mask, mask_of
from kindlm.history.run_view import RunView
from kindlm.outcome import Outcome, Status
from kindlm.ports import Purpose
from kindlm.projections import ERASED
from kindlm.strict_json import json_or_text
from kindlm.telemetry.dialects import PROVIDERS
from kindlm.telemetry.spans import CLIENT, INTERNAL, OutSpan, out_event, out_span, read_pairs
from kindlm.transcript import FinishReason, Message, Role, ToolCall, ToolUse
from kindlm_store.reading import events_after

Redact = Callable[[str], str]

_PIECE = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_OF_ATTEMPT = {
    event.type
    for event in (
        ExecutionStarted, ExecutionFinished, ProviderRequested, ProviderResponded, ProviderFailed,
        AgentSent, AgentReplied, AgentFailed, ToolCalled, ToolSimulated, AssertionEvaluated,
    )
}  # fmt: skip

_UNUSED = ("raw", "trace", "expected", "actual", "output", "context", "reported", "body", "items")
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

    def text_of(ref: str) -> str:
        query = "SELECT body FROM shown_texts WHERE ref = ?"
        row = db.execute(query, (ref,)).fetchone() if redact else None
        return ERASED if row is None else str(row[0])

    view, suites, attempts = RunView(db, run), dict[int, str](), dict[str, _Attempt]()
    start_ns, end_ns, after = 2**63, 0, 0
    while piece := events_after(db, f"run/{run}", after, _PIECE):
        for stored in piece:
            at_ns = (datetime.fromisoformat(stored.at) - _EPOCH) // timedelta(microseconds=1) * 1000
            start_ns, end_ns = min(start_ns, at_ns), max(end_ns, at_ns)
            if stored.type == SuiteStarted.type:
                suites[stored.data["ordinal"]] = stored.data["suite"]
            if stored.type not in _OF_ATTEMPT or stored.subject is None:
                continue
            used = {key: value for key, value in stored.data.items() if key not in _UNUSED}
            event = load_event(stored.type, used, text_of)
            if isinstance(event, ExecutionStarted):
                number = int(stored.subject.partition(".")[0])
                found = view.execution(str(number)) if redact else None
                content = _Content(redact, mask_of(view.attempts(found) if found else ()))
                suite = suites.get(event.suite, "")
                attempts[stored.subject] = _Attempt(run, number, event, suite, content, at_ns)
            elif (attempt := attempts.get(stored.subject)) is not None:
                attempt.add(event, at_ns)
                end_ns = max(end_ns, attempt.now_ns)
                if isinstance(event, ExecutionFinished):
                    yield from attempts.pop(stored.subject).end(event)
        after = piece[-1].version
    for attempt in attempts.values():
        yield from attempt.end(None)
    info, status = view.info, view.status
    yield out_span(
        (trace_id(view.id), span_id(view.id), None),
        f"kindlm run {view.id}",
        INTERNAL,
        (start_ns, end_ns),
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


@dataclass(frozen=True, slots=True)
class _Content:
    """Content of an execution for attributes; without `redact`, it is left out.

    The history holds no secrets of the run. Secrets of the current environment, and personal data
    that checks found, are removed here.
    """

    redact: Redact | None
    mask: Mask

    def text(self, text: str | None) -> str | None:
        return self.redact(self.mask.text(text)) if self.redact and text else None

    def json(self, value: Any) -> str | None:
        """Return a value as JSON text, since some backends do not read nested values."""
        if self.redact is None or value is None:
            return None
        return self.redact(json.dumps(self.mask.value(value), ensure_ascii=False))

    def messages(self, messages: Iterable[Message], **more: str) -> str | None:
        """Return messages in the form of the conventions, with further keys in each."""
        return self.json([_message(each) | more for each in messages] or None)

    def instructions(self, messages: Iterable[Message]) -> str | None:
        """Return the system text among messages."""
        texts = [each.text for each in messages if each.role is Role.SYSTEM]
        return self.json(_parts("\n".join(texts)) or None)


@dataclass(frozen=True, slots=True)
class _Open:
    """The span of a call or tool call without an answer yet."""

    id: str
    parent: str
    name: str
    kind: int
    start_ns: int
    attributes: dict[str, Any]


@dataclass(eq=False, slots=True)
class _Attempt:
    """Folds the events of one attempt into spans.

    Attributes:
        agent: the parent of spans of calls and tools: the open call to an agent, else the attempt.
        calls: open calls, by number.
        tools: open tool calls, by position.
        messages: the messages up to and including each answer, by the number of the call.
        talk: the conversation with the target.
        last: the number of the last call to the target.
        now_ns: the time of the last event. It grows with each event, so that sorting keeps order.
    """

    run: str
    number: int
    started: ExecutionStarted
    suite: str
    content: _Content
    start_ns: int
    id: str = field(init=False)
    agent: str = field(init=False)
    now_ns: int = field(init=False)
    spans: list[OutSpan] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    calls: dict[int, _Open] = field(default_factory=dict)
    tools: dict[int, _Open] = field(default_factory=dict)
    messages: dict[int, tuple[Message, ...]] = field(default_factory=dict)
    talk: Sequence[Message] = field(init=False)
    last: int = 0
    model: ProviderRequested | None = None
    calls_models: bool = False
    wrong: str | None = None

    def __post_init__(self) -> None:
        self.id = self.agent = self._id("")
        self.now_ns, self.talk = self.start_ns, self.started.messages

    def add(self, event: Payload, at_ns: int) -> None:
        """Process the next event."""
        self.now_ns = max(self.now_ns + 1, at_ns)
        match event:
            case AgentSent() | ProviderRequested():
                self._asked(event)
            case CallAnswered() | CallFailed() if event.call in self.calls:
                opened = self.calls.pop(event.call)
                self.agent = self.id if self.agent == opened.id else self.agent
                self._ended(opened, event)
            case ToolCalled():
                call = ToolCall.parse(event.call_id, event.name, event.arguments)
                self.tools[event.index] = self._tool(event.index, call, self.agent)
            case ToolSimulated() if event.index in self.tools:
                self._used(self.tools.pop(event.index), event)
            case AssertionEvaluated():
                self._evaluated(event)

    def end(self, finished: ExecutionFinished | None) -> Iterator[OutSpan]:
        """Yield all spans, including those of calls without an answer."""
        for left in [*self.calls.values(), *self.tools.values()]:
            self._close(left, {"kindlm.status": "unfinished"})
        yield from self.spans
        started = self.started
        status = "unfinished" if finished is None else finished.status.value
        code = finished.error_code if finished else None
        source, _, attempt = (started.source or "").rpartition(".")
        run, _, number = source.rpartition("-")
        talk = [
            each for each in self.talk if each.role in (Role.USER, Role.ASSISTANT) and each.text
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
                "gen_ai.system_instructions": self.content.instructions(self.talk),
                "gen_ai.input.messages": self.content.messages(talk[: len(talk) - len(answer)]),
                "gen_ai.output.messages": self.content.messages(answer, finish_reason="stop"),
            },
            is_error=status in (Status.FAILED, Status.ERRORED),
            message=self.content.text(finished.error if finished else None),
            events=self.evaluations,
            links=[(trace_id(run), span_id(run, f"{number}.{attempt}"))] if run else (),
        )

    def _asked(self, sent: AgentSent | ProviderRequested) -> None:
        """Open the span of a call."""
        self.messages[sent.call] = (*self.messages.get(sent.after or 0, ()), *sent.messages)
        conversation: Sequence[Message] = self.messages[sent.call]
        purpose = Purpose.TEST if isinstance(sent, AgentSent) else sent.purpose
        if purpose == Purpose.TEST and sent.after is not None:
            # After the first answer, which includes it, a prefill is no message of its own.
            first = [m for m in self.started.messages if not (m.prefill and sent.after)]
            conversation = [*first, *conversation]
        if purpose == Purpose.TEST:
            self.talk, self.last = conversation, sent.call
        attributes: dict[str, Any] = {
            "kindlm.call": sent.call,
            "kindlm.try": sent.attempt if sent.attempt > 1 else None,
            "gen_ai.system_instructions": self.content.instructions(conversation),
            "gen_ai.input.messages": self.content.messages(
                each for each in conversation if each.role is not Role.SYSTEM
            ),
        }
        if isinstance(sent, AgentSent):
            operation, model = "invoke_agent", sent.agent
            attributes |= {"gen_ai.agent.name": sent.agent, "kindlm.adapter": sent.adapter}
        else:
            embeds = purpose == Purpose.DRIFT or (sent.path or "").endswith("/embeddings")
            operation, model = "embeddings" if embeds else "chat", sent.model
            attributes |= {
                "gen_ai.provider.name": _provider(sent),
                "gen_ai.request.model": sent.model,
                **{f"gen_ai.request.{name}": value for name, value in sent.parameters.items()},
                "kindlm.purpose": purpose,
            }
            self.calls_models |= purpose == Purpose.AGENT
            if purpose == Purpose.TEST:
                self.model = self.model or sent
                tools = self.started.tools
                if isinstance(tools, list):
                    tools = [{"type": "function"} | it for it in tools if isinstance(it, dict)]
                    attributes["gen_ai.tool.definitions"] = self.content.json(tools)
        self.calls[sent.call] = opened = _Open(
            self._id(f"call/{sent.call}"),
            self.agent if purpose == Purpose.AGENT else self.id,
            f"{operation} {model}",
            CLIENT,
            self.now_ns,
            {"gen_ai.operation.name": operation, **attributes},
        )
        if isinstance(sent, AgentSent):
            self.agent = opened.id

    def _ended(self, opened: _Open, event: CallAnswered | CallFailed) -> None:
        """Close the span of a call, after those of tool calls that its answer reports."""
        # If calls to the agent's models are recorded, these have the tokens and costs.
        counts = not (self.calls_models and isinstance(event, AgentReplied))
        attributes: dict[str, Any] = {
            "gen_ai.response.model": event.model,
            "gen_ai.usage.input_tokens": event.input_tokens if counts else None,
            "gen_ai.usage.output_tokens": event.output_tokens if counts else None,
            "kindlm.cost_usd": event.cost_usd if counts else None,
        }
        if isinstance(event, CallFailed):
            attributes["error.type"] = event.error_code
            attributes["http.response.status_code"] = event.status
            message = self.content.text(event.message)
            self._close(opened, attributes, is_error=True, message=message)
            return
        finish, calls = None, tuple[ToolCall, ...]()
        if isinstance(event, ProviderResponded):
            finish, calls = event.finish_reason, tuple(event.tool_calls)
        elif isinstance(event, AgentReplied):
            for placed in event.tool_calls:
                if not placed.simulated:
                    self.now_ns += 1
                    self._used(self._tool(placed.index, placed.use.call, opened.id), placed.use)
            self.now_ns += 1
        answer = Message(Role.ASSISTANT, event.text, tool_calls=calls)
        reason = finish and _FINISH.get(finish, finish.value)
        said = self.content.messages([answer], finish_reason=reason or "stop")
        attributes |= {
            "gen_ai.response.finish_reasons": [reason] if reason else None,
            "kindlm.latency_ms": event.latency_ms,
            "kindlm.recorded_in": event.recorded_in,
            "gen_ai.output.messages": said,
        }
        self._close(opened, attributes)
        self.messages[event.call] += (answer,)
        if event.call == self.last:
            self.talk = [*self.talk, answer]

    def _tool(self, index: int, call: ToolCall, parent: str) -> _Open:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call.id or None,
            "gen_ai.tool.call.arguments": self.content.json(_arguments(call)),
        }
        name = f"execute_tool {call.name}"
        return _Open(self._id(f"tool/{index}"), parent, name, INTERNAL, self.now_ns, attributes)

    def _used(self, opened: _Open, use: ToolUse | ToolSimulated) -> None:
        attributes = {
            "kindlm.tool.result_from": use.rule,
            "kindlm.tool.problems": [problem.kind.value for problem in use.problems] or None,
            "gen_ai.tool.call.result": self.content.json(use.response),
        }
        self._close(opened, attributes)

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

    def _close(self, opened: _Open, attributes: dict[str, Any], **status: Any) -> None:
        ids, times = (trace_id(self.run), opened.id, opened.parent), (opened.start_ns, self.now_ns)
        known = opened.attributes | attributes
        self.spans.append(out_span(ids, opened.name, opened.kind, times, known, **status))

    def _id(self, part: str) -> str:
        return span_id(self.run, f"{self.number}.{self.started.attempt}", part)


def _provider(sent: ProviderRequested) -> str:
    return _PROVIDERS.get(sent.provider, sent.provider)


def _message(message: Message) -> dict[str, Any]:
    if message.role is Role.TOOL:
        response = json_or_text(message.text)
        parts = [{"type": "tool_call_response", "id": message.tool_call_id, "response": response}]
    else:
        parts = _parts(message.text)
    for call in message.tool_calls:
        asked = {"type": "tool_call", "id": call.id, "name": call.name}
        parts.append(asked | {"arguments": _arguments(call)})
    return {"role": message.role.value, "parts": parts}


def _parts(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "content": text}] if text else []


def _arguments(call: ToolCall) -> Any:
    return call.arguments if call.malformed is None else call.malformed
