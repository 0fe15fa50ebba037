"""Splits a stream into events, and recognises its end.

Events are lines with one JSON object, or server-sent events. Other lines are pieces of the text. A
line or event that begins like a JSON object but is invalid was cut off or is broken: the whole
stream is then unreadable.

The lost part of a broken stream may contain the tool call that a test forbids. So kindlm requires
an end: "The end of a stream" in docs/reference/agent-answers.md lists those of each format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kindlm.agents.drafts import Frame
from kindlm.agents.protocols.a2a import is_call_answer
from kindlm.agents.reply_parts import BROKE_OFF, MAX_EVENTS, NotJson, refuse_more
from kindlm.agents.reply_reading import ENDS_WITH_CALLS
from kindlm.agents.tool_entries import is_of_tool, names_a_tool
from kindlm.strict_json import KeyTwiceError, parse_json, unique_keys
from kindlm.wires import DONE, LINE_END, Event, UnreadableReply, objects, parse_events

EVENT = re.compile(r"[\ufeff\s]*(?:(?:event|id|retry):[^\r\n]*[\r\n]+)*data: ?\{")
"""The beginning of server-sent events with JSON."""

OBJECT = re.compile(r"[\ufeff\s]*\{\s*(?:\"|$)")
"""The beginning of a JSON object."""


def frames_of(
    text: str, *, is_sse: bool, may_lack_empty_lines: bool = False
) -> tuple[list[Frame], StreamEnd]:
    """Return the events or lines of a stream up to `[DONE]`, and its end.

    A `[DONE]` after a chat completion that calls tools ends only that message: an agent that passes
    on the streams of its model has one after each. A space joins lines of bare text. With
    `may_lack_empty_lines`, each data line of an event may be an event. Raises `UnreadableReply` if
    there are more than `MAX_EVENTS`, or if the last one was cut off before its data.
    """
    if is_sse:
        place, events = "event", parse_events(text)
    else:
        lines = LINE_END.split(text.removeprefix("\ufeff"))
        place, events = "line", (Event("message", line.strip()) for line in lines)
    frames, end = list[Frame](), StreamEnd(is_text=not is_sse and bool(text.strip()))
    for number, event in enumerate(events, start=1):
        if event.is_cut and event.type not in _OWN_ENDS:
            message = f"the stream broke off: event {number} has a type, and no data"
            raise UnreadableReply(message, BROKE_OFF)
        for data in _values_in(event.data) if may_lack_empty_lines else [event.data]:
            if data == DONE:
                end.is_done, end.formats = True, dict.fromkeys(end.formats, True)
                if end.stopped_for in ENDS_WITH_CALLS:
                    continue
                return frames, end
            if not data and not is_sse:
                continue
            refuse_more(len(frames) + 1, MAX_EVENTS, "events")
            try:
                value = parse_json(data, unique_keys)
            except ValueError as error:
                is_broken = OBJECT.match(data) or isinstance(error, KeyTwiceError)
                value = NotJson(f"{place} {number} is not JSON: {error}") if is_broken else None
            if isinstance(value, dict) and names_a_tool(event.type) and not is_of_tool(value):
                value = {**value, "type": event.type}  # a type such as `start` says less
            if frames and not frames[-1].type:
                frames[-1] = frames[-1]._replace(data=frames[-1].data + " ")
            is_event = is_sse or isinstance(value, dict | NotJson)
            frames.append(Frame(event.type if is_event else "", data, value))
            if is_event:
                end.see(event.type, value)
    return frames, end


def _values_in(data: str) -> list[str]:
    """Return the lines of an event if each is a value, else all lines as one value."""
    lines = data.split("\n")
    are_values = all(
        (line.startswith("{") and line.endswith("}")) or line == DONE for line in lines
    )
    return lines if are_values else [data]


class StreamFormat(StrEnum):
    """A format of streams that marks its end."""

    CHAT = "chat completions"
    ANTHROPIC = "Anthropic messages"
    RESPONSES = "OpenAI responses"
    UI_MESSAGES = "AI SDK messages"
    AG_UI = "AG-UI"
    A2A = "A2A"
    GEMINI = "Gemini"
    DONE = "events with `done`"


_ENDS = {
    StreamFormat.CHAT: ("finish_reason",),
    StreamFormat.ANTHROPIC: ("message_stop",),
    StreamFormat.RESPONSES: ("response.completed", "response.incomplete"),
    StreamFormat.UI_MESSAGES: ("finish",),
    StreamFormat.AG_UI: ("RUN_FINISHED", "RUN_ERROR"),
    StreamFormat.DONE: ("done: true",),
}
"""The ends of these formats, the regular one first."""

_TYPES = {
    StreamFormat.ANTHROPIC: ("message_start", "message_delta", "message_stop", "content_block_"),
    StreamFormat.RESPONSES: ("response.",),
    StreamFormat.UI_MESSAGES: (
        *("text-start", "text-delta", "text-end", "reasoning-", "message-metadata", "source-"),
        *("tool-input-", "tool-output-", "tool-approval-"),
        *("start-step", "finish-step", "reset-step"),
    ),
    StreamFormat.AG_UI: ("RUN_", "TEXT_MESSAGE_", "TOOL_CALL_"),
}
"""The beginnings of the types of events that only this format has."""

_OWN_ENDS = frozenset(
    {
        *("done", "end", "finish", "finished", "complete", "completed", "stop", "close"),
        *("message_end", "message_complete", "final_message", "stream_end"),
    }
)


_STATES = frozenset({"values", "updates"})
"""The events of LangGraph with a state of the graph, whose keys are the user's own."""


@dataclass(slots=True)
class StreamEnd:
    """Recognises the formats of a stream; `formats` has whether the end of each has arrived.

    `is_text` means that there is text, and so far no event. `stopped_for` is the last finish reason
    of a chat completion.
    """

    formats: dict[StreamFormat, bool] = field(default_factory=dict)
    is_done: bool = False
    is_text: bool = False
    stopped_for: str = ""

    def see(self, name: str, value: Any) -> None:
        """Take note of an event, given its name and its JSON value.

        An end before further events of its format ended only a part.
        """
        self.is_text = False
        kind = value.get("type", name) if isinstance(value, dict) else name
        if isinstance(kind, str):
            self.is_done = self.is_done or not _OWN_ENDS.isdisjoint((kind, name))
            found = (known for known, types in _TYPES.items() if kind.startswith(types))
            known = next(found, None)
            if kind == "finish" and StreamFormat.UI_MESSAGES in self.formats:
                known = StreamFormat.UI_MESSAGES  # streams in an unknown format also end so
            if known is not None:
                self.formats[known] = kind in _ENDS[known]
        if not isinstance(value, dict):
            return
        for choice in objects(value.get("choices")):
            if not choice.keys().isdisjoint(("delta", "finish_reason", "message")):
                reason = choice.get("finish_reason")
                self.formats[StreamFormat.CHAT] = bool(reason) or "message" in choice
                self.stopped_for = reason if isinstance(reason, str) else self.stopped_for
        if objects(value.get("candidates")):
            self.formats[StreamFormat.GEMINI] = False
        if is_call_answer(value):
            self.formats[StreamFormat.A2A] = False
        done, is_state = value.get("done"), name in _STATES or "messages" in value
        # `done: false` in a state does not say that more is to come.
        if done is True or (done is False and not is_state):
            self.formats[StreamFormat.DONE] = done

    def check(self, *, has_end: bool) -> None:
        """Raise `UnreadableReply` if the stream broke off; for `has_end`, see `HttpReply`."""
        # What looks like another format may be the state of a graph.
        known = [each for each in self.formats if each in _ENDS]
        missing = [each for each in known if not self.formats[each]]
        if missing:
            ends = f"{missing[0]} end with `{_ENDS[missing[0]][0]}` or [DONE]"
            raise UnreadableReply(f"the stream broke off: {ends}", BROKE_OFF)
        if not (has_end or self.is_done or known or self.is_text):
            raise UnreadableReply(
                "the stream broke off: the connection was closed, without `data: [DONE]` and "
                "without the end of a chunked body or its Content-Length",
                BROKE_OFF,
            )
