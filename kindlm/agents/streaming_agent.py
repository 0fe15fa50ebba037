"""The `tapescope` and `streaming` adapters: agents that answer with a stream of events.

The body has the form `route`: see `http_request`. The answer is JSON Lines or server-sent events,
whichever it says or looks like. With `streaming: false` it is one JSON value, read like that of the
http adapter.

The table under "tapescope and streaming" in docs/how-to/agents.md has the events. An event is an
object with a `type`, and what it says under `data` or beside the type. A result belongs to the call
with its id, else to the first unanswered one with its name, else, if it names none, to the first
unanswered one. A narration that begins with "Step" is not a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, ClassVar

from kindlm.agents.drafts import Draft, Heard, ToldCalls
from kindlm.agents.event_streams import hear_events
from kindlm.agents.http_agent import Posted
from kindlm.agents.http_request import BodyTemplate
from kindlm.agents.protocols import ProtocolName
from kindlm.agents.reply_parts import UnreadableReply, error_text, first_text, tells_failure
from kindlm.agents.reply_reading import (
    QUERY_TEXT_KEYS,
    FailedReply,
    Reading,
    agent_reply,
    read_cost,
    read_counts,
    read_model,
    read_reply,
    summed,
)
from kindlm.agents.served import HttpReply, Streams
from kindlm.agents.tool_entries import calls_of_event, read_tool_use
from kindlm.bounds import MAX_COUNTED
from kindlm.dataclass import dataclass
from kindlm.transcript import UNNAMED, Usage
from kindlm.wires import Spent, parse_body

_ACCEPT = "application/x-ndjson, text/event-stream, application/json;q=0.9, */*;q=0.8"


class Streaming(Posted):
    """Agents that answer with a stream of events."""

    other_names: ClassVar[Mapping[str, str]] = {"tapescope": "tapescope", "jsonl": "tapescope"}

    streaming: Streams = None
    protocol: ProtocolName = None
    body: BodyTemplate = None

    @property
    def form(self) -> str:
        """The form of the body."""
        return "route"

    def streams(self) -> bool:
        """Tell whether a stream is asked for."""
        return self.streaming is not False

    def accepts(self) -> str | None:
        """Return the `Accept` header that asks for a stream; None if the protocol has its own."""
        return _ACCEPT if self.streams() and self.protocol is None else None

    def read(self, answer: HttpReply) -> Heard:
        """Read a stream, or one JSON value."""
        if not self.streams():
            reading = Reading(QUERY_TEXT_KEYS, may_lack_text=True)
            return Heard(read_reply(parse_body(answer.text), reading))
        return hear_events(
            answer.text,
            Reading(),
            has_end=answer.has_end,
            is_sse=answer.is_stream,
            otherwise=EventsDraft(),
        )


_SILENT = frozenset({"start", "status", "thinking", "step_start", "step_complete", "metadata"})
_WHOLE = frozenset({"final_message", "message_complete"})
_OF_THIS_FORMAT = (
    *("token", "final_message", "message_complete", "usage"),
    *("tool_call", "tool_result", "step_start", "step_complete", "step_narration"),
)
"""Events that show that the agent speaks this format, in which it reports tool calls, too."""
_TEXTS = ("text", "message", "content", "data", "delta")
_NARRATED = ("tool", "tool_name", "toolName", "name")


@dataclass(slots=True)
class EventsDraft(Draft):
    """An answer in the words of these agents."""

    texts: list[str] = field(default_factory=list)
    calls: ToldCalls = field(default_factory=ToldCalls)
    usages: list[Usage] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    has_unpriced: bool = False
    model: str | None = None
    knows_events: bool = False

    def add(self, event: Mapping[str, Any], number: int) -> None:
        """Take one event."""
        kind, said = event.get("type"), _said(event)
        self.knows_events = self.knows_events or kind in _OF_THIS_FORMAT
        match kind:
            case "token":
                self.texts.append(_text(said, ("token", "text", "content"), number) or "")
            case "tool_call":
                self.calls.add_use(read_tool_use(said))
            case "tool_result":
                told = read_tool_use(said)
                call_id, name = told.call.id or None, told.call.name
                named = None if name == UNNAMED else name
                if not self.calls.answer(call_id, named, told.response):
                    # What answered was called, whatever the stream leaves out.
                    self.calls.add(name, call_id, None).answer(told.response)
            case "step_narration":
                text = _text(said, ("text",), number) or ""
                # Of a narration, `action` may say anything.
                tool = first_text(*map(said.get, _NARRATED))
                if tool is not None and not text.startswith("Step"):
                    self.calls.add(tool, None, None).answer(text)
            case "usage":
                self._count(event, said)
            case _ if kind == "error" or _is_bare_error(event):
                raise FailedReply(error_text(event, said))
            case _ if isinstance(kind, str) and kind in _WHOLE:
                whole = _text(said, ("text", "content"), number)
                self.texts = self.texts if whole is None else [whole]
            case _ if isinstance(kind, str) and kind in _SILENT:
                pass
            case _:
                for use in calls_of_event(event):
                    if self.calls.by_id(use.call.id) is None:
                        self.calls.add_use(use)
                self.texts.append(_any_text(event))
        if kind not in ("tool_call", "tool_result"):
            self.model = read_model(said) or read_model(event) or self.model

    def add_text(self, text: str, _number: int) -> None:
        """Take a piece of the text."""
        self.texts.append(text)

    def finished(self) -> Heard:
        """Return the whole."""
        text, shown = "".join(self.texts), self.knows_events or None
        return Heard(agent_reply(text, self.calls.uses, self.spent(), reports_tools=shown))

    def spent(self) -> Spent:
        """Return the sum of what was reported so far."""
        cost_usd = sum(self.costs)
        is_known = self.costs and not self.has_unpriced and cost_usd <= MAX_COUNTED
        return Spent(summed(self.usages), cost_usd if is_known else None, self.model)

    def _count(self, event: Mapping[str, Any], said: Mapping[str, Any]) -> None:
        self.usages.append(read_counts(said))
        cost = read_cost(said)
        cost = read_cost(event) if cost is None else cost
        if cost is not None:
            self.costs.append(cost)
        elif self.usages[-1] != Usage():
            self.has_unpriced = True


def _said(event: Mapping[str, Any]) -> Mapping[str, Any]:
    data = event.get("data")
    return data if isinstance(data, dict) and data else event


def _text(said: Mapping[str, Any], keys: Iterable[str], number: int) -> str | None:
    """Return the text under the first of some keys, None if there is nothing there."""
    for key in keys:
        value = said.get(key)
        if isinstance(value, str):
            return value
        if value is not None:
            raise UnreadableReply(f"`{key}` of event {number} is not a string")
    return None


def _any_text(event: Mapping[str, Any]) -> str:
    values = (event.get(key) for key in _TEXTS)
    texts = (value.get("text") if isinstance(value, dict) else value for value in values)
    return first_text(*texts) or ""


def _is_bare_error(event: Mapping[str, Any]) -> bool:
    """Tell whether an event without a type has an `error`, and no text but the error's message."""
    if event.get("type") is not None or not tells_failure(event):
        return False
    return not _any_text({key: value for key, value in event.items() if key != "message"})
