"""Splits a stream into events, and recognises its end.

Events are one JSON object in a line, or server-sent events. What is no event is a piece of the
text. A line or frame that begins as a JSON object and is none was cut off or is broken: it makes
the whole stream unreadable.

The tool call that a test forbids may stand in what a cut stream lacks. A stream of a known format
ends as its format says, whatever the connection does: see "The end of a stream" in
docs/how-to/agents.md. `[DONE]` ends all of them. Events in the words of the agent's author end with
an event whose name or type says so (`end`, `done`, ...), or with the HTTP message: its last chunk,
or its Content-Length. A connection that is closed without any of these is no end.
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
    """Return whether a text is server-sent events that hold JSON, whatever its media type."""
    return _EVENT.match(text) is not None


def begins_as_object(text: str) -> bool:
    """Return whether a text begins like a JSON object."""
    return _OBJECT.match(text.removeprefix("\ufeff")) is not None


def frames_of(
    text: str, *, is_sse: bool, may_lack_empty_lines: bool = False
) -> tuple[list[Frame], StreamEnd]:
    """Return the events of a stream, or its lines, up to `[DONE]`, and what was seen of its end.

    Lines of bare text are joined by a space. Raises `UnreadableReply` if there are more than
    `MAX_EVENTS`. If there may be no empty lines between events, each line with data is one.
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
                # This marker ends streams of every format.
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
    """Return the values in the lines of an event, or the single value of all its lines."""
    lines = data.split("\n")
    whole = all((line.startswith("{") and line.endswith("}")) or line == DONE for line in lines)
    return lines if whole else [data]


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
    """What was seen of a stream's end.

    `formats` are those that were recognised, and `ended` those of them whose end was seen.
    """

    formats: dict[StreamFormat, None] = field(default_factory=dict)
    ended: set[StreamFormat] = field(default_factory=set)
    is_done: bool = False
    is_empty: bool = True

    def see(self, name: str, value: Any) -> None:
        """Take an event: its name, and its JSON."""
        self.is_empty = False
        kind = value.get("type", name) if isinstance(value, dict) else name
        if isinstance(kind, str):
            self.is_done = self.is_done or kind in _OWN_ENDS or name in _OWN_ENDS
            by_prefix = (known for prefix, known in _BY_PREFIX.items() if kind.startswith(prefix))
            known = _END_TYPES.get(kind) or _BY_TYPE.get(kind) or next(by_prefix, None)
            # Streams in formats of an agent's author also end with `finish`.
            if known is not None and (kind not in _OWN_ENDS or known in self.formats):
                self._take(known, ends=kind in _END_TYPES)
        if isinstance(value, dict):
            self._see_object(value)

    def check(self, *, has_end: bool) -> None:
        """Raise `StreamBrokeOff` if the stream broke off.

        Args:
            has_end: whether the transport marked the end, and did not just close.
        """
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
        """Take an event of a format; an end that is followed by events was the end of a part."""
        self.formats[known] = None
        (self.ended.add if ends else self.ended.discard)(known)
