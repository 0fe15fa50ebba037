"""The `tapescope` and `streaming` adapters: agents that answer with a stream of events.

The section "tapescope and streaming" of docs/how-to/agents.md has the request, and that of
docs/reference/agent-answers.md the events. An event is an object with a `type`, and its content
under `data` or beside the type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, ClassVar

from kindlm.agents.drafts import Draft, ParsedAnswer, ReportedCalls
from kindlm.agents.event_streams import read_stream
from kindlm.agents.hidden_calls import calls_of_event, hidden_calls
from kindlm.agents.http_agent import Posted
from kindlm.agents.http_request import BodyTemplate
from kindlm.agents.protocols import ProtocolName
from kindlm.agents.reply_parts import UnreadableReply, error_text, first_text
from kindlm.agents.reply_reading import (
    QUERY_TEXT_KEYS,
    FailedReply,
    Reading,
    agent_reply,
    failure_of,
    read_reply,
)
from kindlm.agents.reply_usage import read_cost, read_counts, read_model, spent_together
from kindlm.agents.served import HttpReply, Streams
from kindlm.agents.tool_entries import (
    UNREAD,
    has_place_for_calls,
    read_tool_use,
    reported_calls,
    together,
)
from kindlm.dataclass import dataclass, replace
from kindlm.transcript import UNNAMED, ToolUse
from kindlm.wires import Spent, parse_body

_ACCEPT = "application/x-ndjson, text/event-stream, application/json;q=0.9, */*;q=0.8"


class Streaming(Posted):
    """Options of agents that answer with a stream of events."""

    other_names: ClassVar[Mapping[str, str]] = {"tapescope": "tapescope", "jsonl": "tapescope"}

    streaming: Streams = None
    protocol: ProtocolName = None
    body: BodyTemplate = None

    @property
    def form(self) -> str:
        return "route"

    def streams(self) -> bool:
        return self.streaming is not False

    def accepts(self) -> str | None:
        """Return the `Accept` header for a stream; None if the protocol has its own."""
        return _ACCEPT if self.streams() and self.protocol is None else None

    def read(self, answer: HttpReply, _sent: str) -> ParsedAnswer:
        if not self.streams():
            reading = Reading(QUERY_TEXT_KEYS, may_lack_text=True)
            return ParsedAnswer(read_reply(parse_body(answer.text), reading))
        return read_stream(
            answer.text,
            Reading(),
            has_end=answer.has_end,
            is_sse=answer.is_stream,
            otherwise=EventsDraft(),
        )


_IGNORED = frozenset({"start", "status", "thinking", "step_start", "step_complete", "metadata"})
_NOT_OF_CALLS = _IGNORED | {"token", "usage"}
_WHOLE = frozenset({"final_message", "message_complete"})
_OF_THIS_FORMAT = (
    *("token", "final_message", "message_complete", "usage"),
    *("tool_call", "tool_result", "step_start", "step_complete", "step_narration"),
)
"""Types of events that only this format has; it also has events for tool calls."""
_TEXTS = ("text", "message", "content", "data", "delta")
_NARRATED = ("tool", "tool_name", "toolName", "name")


@dataclass(slots=True)
class EventsDraft(Draft):
    """An answer in the format of these agents."""

    texts: list[str] = field(default_factory=list)
    calls: ReportedCalls = field(default_factory=ReportedCalls)
    listed: list[ToolUse] = field(default_factory=list)
    counted: list[Spent] = field(default_factory=list)
    model: str | None = None
    models: set[str | None] = field(default_factory=set)
    knows_events: bool = False

    def add(self, event: Mapping[str, Any], number: int) -> None:
        data = event.get("data")
        content = data if isinstance(data, dict) and data else event
        kind = event.get("type")
        self.knows_events = self.knows_events or kind in _OF_THIS_FORMAT
        self.listed = together(self.listed, _listed(event))
        match kind:
            case "token":
                self.texts.append(_text(content, ("token", "text", "content"), number) or "")
            case "tool_call":
                self.calls.add_use(read_tool_use(content))
            case "tool_result":
                use = read_tool_use(content)
                call_id, name = use.call.id or None, use.call.name
                known_name = None if name == UNNAMED else name
                if not self.calls.answer(call_id, known_name, use.response):
                    # A result without a call shows that there was one.
                    self.calls.add(name, call_id, None).answer(use.response)
            case "step_narration":
                text = _text(content, ("text",), number) or ""
                # The `action` of a narration may be any text.
                tool = first_text(*map(content.get, _NARRATED))
                if tool is not None and not text.startswith("Step"):
                    self.calls.add(tool, None, None).answer(text)
                elif tool is None and (any(map(content.get, _NARRATED)) or hidden_calls(event)):
                    self.calls.add_use(UNREAD)
            case "usage":
                cost = read_cost(content)
                cost = read_cost(event) if cost is None else cost
                self.counted.append(Spent(read_counts(content), cost))
                self.models |= {read_model(content) or read_model(event)} - {None}
            case _ if kind == "error" or (kind is None and failure_of(event) is not None):
                raise FailedReply(error_text(event, content))
            case str() if kind in _WHOLE:
                whole = _text(content, ("text", "content"), number)
                self.texts = self.texts if whole is None else [whole]
            case str() if kind in _IGNORED:
                pass
            case _:
                for use in calls_of_event(event):
                    self.calls.merge_use(use)
                self.texts.append(_any_text(event))
        if kind not in ("tool_call", "tool_result"):
            self.model = read_model(content) or read_model(event) or self.model

    def add_text(self, text: str, _number: int) -> None:
        self.texts.append(text)

    def finished(self) -> ParsedAnswer:
        text, shown = "".join(self.texts), self.knows_events or None
        uses = together(self.calls.uses, self.listed)
        return ParsedAnswer(agent_reply(text, uses, self.spent(), reports_tools=shown))

    def spent(self) -> Spent:
        # The tokens of several models have no single price.
        model = self.model if len(self.models) < 2 else None
        return replace(spent_together(list(filter(None, self.counted))), model=model)


def _listed(event: Mapping[str, Any]) -> list[ToolUse]:
    """Return the calls that an event lists, perhaps once more.

    In an event that is not about calls, their number may have such a name.
    """
    kind = event.get("type")
    if not isinstance(kind, str):
        return []
    has_list = kind in _NOT_OF_CALLS and has_place_for_calls(event, None)
    return reported_calls(event, None) if has_list or kind in _WHOLE | {"metadata"} else []


def _text(content: Mapping[str, Any], keys: Iterable[str], number: int) -> str | None:
    """Return the text under the first key that has a value, None if none has."""
    for key in keys:
        value = content.get(key)
        if isinstance(value, str):
            return value
        if value is not None:
            raise UnreadableReply(f"`{key}` of event {number} is not a string")
    return None


def _any_text(event: Mapping[str, Any]) -> str:
    values = (event.get(key) for key in _TEXTS)
    texts = (value.get("text") if isinstance(value, dict) else value for value in values)
    return first_text(*texts) or ""
