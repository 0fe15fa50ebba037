"""Splits a stream into events, and recognises its end.

Events are lines with one JSON object, or server-sent events. Other lines are pieces of the text. A
line or event that begins like a JSON object but is invalid was cut off or is broken: the whole
stream is then unreadable.

The lost part of a broken stream may contain the tool call that a test forbids. So kindlm requires
an end: "The end of a stream" in docs/how-to/agents.md lists those of each format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kindlm.agents.drafts import Frame
from kindlm.agents.protocols.a2a import ends_answer, is_call_answer
from kindlm.agents.reply_parts import MAX_EVENTS, NotJson, StreamBrokeOff, refuse_more
from kindlm.strict_json import KeyTwiceError, parse_json, unique_keys
from kindlm.wires import DONE, LINE_END, Event, objects, parse_events

_EVENT = re.compile(r"[\ufeff\s]*(?:(?:event|id|retry):[^\r\n]*[\r\n]+)*data: ?\{")
_OBJECT = re.compile(r"\s*\{\s*(?:\"|$)")


def holds_events(text: str) -> bool:
    """Return whether a text looks like server-sent events with JSON."""
    return _EVENT.match(text) is not None


def begins_as_object(text: str) -> bool:
    """Return whether a text begins like a JSON object."""
    return _OBJECT.match(text.removeprefix("\ufeff")) is not None


def frames_of(
    text: str, *, is_sse: bool, may_lack_empty_lines: bool = False
) -> tuple[list[Frame], StreamEnd]:
    """Return the events or lines of a stream up to `[DONE]`, and its end.

    A space joins lines of bare text. With `may_lack_empty_lines`, each data line of an event may be
    an event. Raises `UnreadableReply` if there are more than `MAX_EVENTS`.
    """
    if is_sse:
        place, events = "event", parse_events(text)
    else:
        lines = LINE_END.split(text.removeprefix("\ufeff"))
        place, events = "line", (Event("message", line.strip()) for line in lines)
    frames, end = list[Frame](), StreamEnd()
    for number, event in enumerate(events, start=1):
        for data in _values_in(event.data) if may_lack_empty_lines else [event.data]:
            if data == DONE:
                end.is_done = True
                end.ended.update(StreamFormat)
                return frames, end
            if not data and not is_sse:
                continue
            refuse_more(len(frames) + 1, MAX_EVENTS, "events")
            try:
                value = parse_json(data, unique_keys)
            except ValueError as error:
                is_broken = _OBJECT.match(data) or isinstance(error, KeyTwiceError)
                value = NotJson(f"{place} {number} is not JSON: {error}") if is_broken else None
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
    StreamFormat.CHAT: "a `finish_reason`",
    StreamFormat.ANTHROPIC: "`message_stop`",
    StreamFormat.RESPONSES: "`response.completed`",
    StreamFormat.UI_MESSAGES: "`finish`",
    StreamFormat.AG_UI: "`RUN_FINISHED`",
    StreamFormat.A2A: "a message, or a task that is done",
    StreamFormat.GEMINI: "a `finishReason`",
    StreamFormat.DONE: "`done: true`",
}
ANTHROPIC_EVENTS = (
    *("message_start", "message_delta"),
    *("content_block_start", "content_block_delta", "content_block_stop"),
)
_BY_TYPE = {
    **dict.fromkeys(ANTHROPIC_EVENTS, StreamFormat.ANTHROPIC),
    **dict.fromkeys(
        (
            *("text-start", "text-delta", "text-end", "start-step", "finish-step", "reset-step"),
            *("reasoning-start", "reasoning-delta", "reasoning-end", "message-metadata"),
            *("tool-input-start", "tool-input-delta", "tool-input-available", "tool-input-error"),
            *("tool-output-available", "tool-output-error", "tool-output-denied"),
            *("tool-approval-request", "source-url", "source-document"),
        ),
        StreamFormat.UI_MESSAGES,
    ),
}
_BY_PREFIX = {
    "response.": StreamFormat.RESPONSES,
    "RUN_": StreamFormat.AG_UI,
    "TEXT_MESSAGE_": StreamFormat.AG_UI,
    "TOOL_CALL_": StreamFormat.AG_UI,
}
_END_TYPES = {
    "message_stop": StreamFormat.ANTHROPIC,
    "response.completed": StreamFormat.RESPONSES,
    "response.incomplete": StreamFormat.RESPONSES,
    "finish": StreamFormat.UI_MESSAGES,
    "RUN_FINISHED": StreamFormat.AG_UI,
    "RUN_ERROR": StreamFormat.AG_UI,
}
_OWN_ENDS = frozenset(
    {
        *("done", "end", "finish", "finished", "complete", "completed", "stop", "close"),
        *("message_end", "message_complete", "final_message", "stream_end"),
    }
)


@dataclass(slots=True)
class StreamEnd:
    """Recognises the formats of a stream, and those whose end has arrived."""

    formats: dict[StreamFormat, None] = field(default_factory=dict)
    ended: set[StreamFormat] = field(default_factory=set)
    is_done: bool = False
    is_empty: bool = True

    def see(self, name: str, value: Any) -> None:
        """Take note of an event, given its name and its JSON value."""
        self.is_empty = False
        kind = value.get("type", name) if isinstance(value, dict) else name
        if isinstance(kind, str):
            self.is_done = self.is_done or kind in _OWN_ENDS or name in _OWN_ENDS
            by_prefix = (known for prefix, known in _BY_PREFIX.items() if kind.startswith(prefix))
            known = _END_TYPES.get(kind) or _BY_TYPE.get(kind) or next(by_prefix, None)
            # Streams in an unknown format also end with `finish`.
            if known is not None and (kind not in _OWN_ENDS or known in self.formats):
                self._take(known, ends=kind in _END_TYPES)
        if isinstance(value, dict):
            self._see_object(value)

    def check(self, *, has_end: bool) -> None:
        """Raise `StreamBrokeOff` if the stream broke off; for `has_end`, see `HttpReply`."""
        missing = [known for known in self.formats if known not in self.ended]
        if missing:
            ends = f"{missing[0]} end with {_ENDS[missing[0]]} or [DONE]"
            raise StreamBrokeOff(f"the stream broke off: {ends}")
        if not (has_end or self.is_done or self.formats or self.is_empty):
            raise StreamBrokeOff(
                "the stream broke off: the connection was closed, without `data: [DONE]` and "
                "without the end of a chunked body or its Content-Length"
            )

    def _see_object(self, value: Mapping[str, Any]) -> None:
        for choice in objects(value.get("choices")):
            if not choice.keys().isdisjoint(("delta", "finish_reason", "message")):
                ends = bool(choice.get("finish_reason")) or "message" in choice
                self._take(StreamFormat.CHAT, ends=ends)
        for candidate in objects(value.get("candidates")):
            self._take(StreamFormat.GEMINI, ends=bool(candidate.get("finishReason")))
        if is_call_answer(value):
            self._take(StreamFormat.A2A, ends=ends_answer(value))
        if isinstance(value.get("done"), bool):
            self._take(StreamFormat.DONE, ends=value["done"])

    def _take(self, known: StreamFormat, *, ends: bool) -> None:
        """Take note of an event of a format; an end before further events ended only a part."""
        self.formats[known] = None
        (self.ended.add if ends else self.ended.discard)(known)
