"""How the events of a stream are framed, and how a stream ends.

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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from kindlm.agents.agent_events import Piece
from kindlm.agents.protocols.a2a import ends_answer, is_call_answer
from kindlm.agents.reply_parts import MAX_EVENTS, NotJson, StreamBrokeOff, refuse_more
from kindlm.agents.tool_entries import names_a_tool
from kindlm.strict_json import KeyTwiceError, parse_json, unique_keys
from kindlm.wires.answer import objects
from kindlm.wires.sse import DONE, LINE_END, Event, parse_events

_EVENT = re.compile(r"[\ufeff\s]*(?:(?:event|id|retry):[^\r\n]*[\r\n]+)*data: ?\{")
_OBJECT = re.compile(r"\s*\{\s*(?:\"|$)")


def holds_events(text: str) -> bool:
    """Tell whether a text is server-sent events that hold JSON, whatever it was sent as."""
    return _EVENT.match(text) is not None


def begins_as_object(text: str) -> bool:
    """Tell whether a text begins as a JSON object does."""
    return _OBJECT.match(text.removeprefix("\ufeff")) is not None


class Frame(NamedTuple):
    """An event as it came, or a line of bare text, which has no `type`.

    `value` is the JSON value of its data. It is None for bare text, and the error for data that
    begins like a JSON object but cannot be read as one.
    """

    type: str
    data: str
    value: Any


def frames_of(text: str, *, is_sse: bool) -> tuple[list[Frame], bool]:
    """Return the events of a stream, or its lines, and whether `[DONE]` follows them.

    Raises `UnreadableReply` if there are more than `MAX_EVENTS`.
    """
    if is_sse:
        place, events = "event", parse_events(text)
    else:
        lines = LINE_END.split(text.removeprefix("\ufeff"))
        place, events = "line", (Event("message", line.strip()) for line in lines)
    frames = list[Frame]()
    for number, event in enumerate(events, start=1):
        if event.data == DONE:
            return frames, True
        if event.data or is_sse:
            refuse_more(len(frames) + 1, MAX_EVENTS, "events")
            try:
                value = json_value(event.data, f"{place} {number}")
            except NotJson as broken:
                value = broken
            is_event = is_sse or isinstance(value, dict | NotJson)
            frames.append(Frame(event.type if is_event else "", event.data, value))
    return frames, False


def pieces_of(frames: Iterable[Frame]) -> Iterator[Piece]:
    """Return the objects of a stream and what is between them; raise `NotJson` for a broken one.

    The name of an event is its type. Between lines of bare text there is a space.
    """
    line: str | None = None
    for frame in frames:
        if line is not None:
            yield line + " "
            line = None
        value = frame.value
        if isinstance(value, NotJson):
            raise value
        if isinstance(value, dict):
            yield value if frame.type == "message" else {"type": frame.type} | value
        elif frame.type == "error":
            yield {"type": "error", "message": value if isinstance(value, str) else frame.data}
        elif names_a_tool(frame.type):
            yield {"type": frame.type}
        elif frame.type:
            yield bare_text(frame)
        else:
            line = frame.data
    if line is not None:
        yield line


def bare_text(frame: Frame) -> str:
    """Return the text that an event is which holds no object; null is none."""
    if isinstance(frame.value, str):
        return frame.value
    return "" if frame.data == "null" else frame.data


def json_value(text: str, place: str) -> Any:
    """Return the JSON value of a text, None if it is bare.

    Raises:
        NotJson: it begins like an object and is not valid, or has a key twice; `place` tells
            where it stands.
    """
    try:
        return parse_json(text, unique_keys)
    except ValueError as error:
        if _OBJECT.match(text) or isinstance(error, KeyTwiceError):
            raise NotJson(f"{place} is not JSON: {error}") from None
        return None


class StreamFormat(StrEnum):
    """A format of streams that has an end of its own."""

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


def end_of(frames: Iterable[Frame], *, is_done: bool) -> StreamEnd:
    """Look through a stream for its formats and its end; bare lines have none of their own.

    `is_done` is whether it comes to `[DONE]`, which ends streams of every format.
    """
    end = StreamEnd()
    for frame in frames:
        if frame.type:
            end.see(frame.type, frame.value)
    if is_done:
        end.is_done = True
        end.ended.update(StreamFormat)
    return end


@dataclass(slots=True)
class StreamEnd:
    """What was seen of a stream's end.

    `formats` are those that were recognised, and `ended` those of them that came to their end.
    """

    formats: dict[StreamFormat, None] = field(default_factory=dict)
    ended: set[StreamFormat] = field(default_factory=set)
    is_done: bool = False
    is_empty: bool = True

    def see(self, name: str, value: Any) -> None:
        """Take an event: its name, and the JSON that it holds."""
        self.is_empty = False
        kind = value.get("type", name) if isinstance(value, dict) else name
        if isinstance(kind, str):
            self.is_done = self.is_done or kind in _OWN_ENDS or name in _OWN_ENDS
            by_prefix = (known for prefix, known in _BY_PREFIX.items() if kind.startswith(prefix))
            known = _END_TYPES.get(kind) or _BY_TYPE.get(kind) or next(by_prefix, None)
            # Streams in the words of an agent's author end with `finish`, too.
            if known is not None and (kind not in _OWN_ENDS or known in self.formats):
                self._take(known, ends=kind in _END_TYPES)
        if isinstance(value, dict):
            self._see_object(value)

    def check(self, *, has_end: bool) -> None:
        """Raise `StreamBrokeOff` if the stream broke off.

        Args:
            has_end: whether the transport told the end, and did not just close.
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
        """Take an event of a format; an end that others follow was that of a part."""
        self.formats[known] = None
        (self.ended.add if ends else self.ended.discard)(known)
