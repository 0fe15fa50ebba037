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

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

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


def json_lines(text: str) -> Iterator[Piece]:
    """Return the pieces of a stream of lines; between lines of bare text there is a space."""
    bare: str | None = None
    for number, written in enumerate(LINE_END.split(text.removeprefix("\ufeff")), start=1):
        line = written.strip()
        if not line:
            continue
        if line == DONE:
            break
        if bare is not None:
            yield bare + " "
            bare = None
        value = json_value(line, f"line {number}")
        if isinstance(value, dict):
            yield value
        else:
            bare = line
    if bare is not None:
        yield bare


def line_events(text: str) -> Iterator[Event]:
    """Return the lines of a stream that are meant as events; bare text has no end of its own."""
    for line in LINE_END.split(text.removeprefix("\ufeff")):
        if _OBJECT.match(line) or line.strip() == DONE:
            yield Event("message", line.strip())


def sse_frames(text: str) -> Iterator[Piece]:
    """Return the pieces of a stream of frames; the name of a frame is the type of its event."""
    for number, frame in enumerate(parse_events(text), start=1):
        if frame.data == DONE:
            return
        value = json_value(frame.data, f"event {number}")
        named = frame.type != "message"
        if isinstance(value, dict):
            yield {"type": frame.type} | value if named else value
        elif frame.type == "error":
            yield {"type": "error", "message": value if isinstance(value, str) else frame.data}
        elif names_a_tool(frame.type):
            yield {"type": frame.type}
        else:
            yield bare_text(frame, value)


def bare_text(event: Event, value: Any) -> str:
    """Return the text that an event is which holds no object; null is none."""
    if isinstance(value, str):
        return value
    return "" if event.data == "null" else event.data


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


def end_of(events: Iterable[Event]) -> StreamEnd:
    """Look through a stream for its formats and its end; what is not JSON says nothing of them.

    Raises `UnreadableReply` if there are more than `MAX_EVENTS`.
    """
    end = StreamEnd()
    for number, event in enumerate(events, start=1):
        refuse_more(number, MAX_EVENTS, "events")
        if event.data == DONE:
            end.see_done()
            break
        value = None
        with contextlib.suppress(ValueError):
            value = parse_json(event.data)
        end.see(event.type, value)
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

    def see_done(self) -> None:
        """Take `[DONE]`, which ends streams of every format."""
        self.is_done = True
        self.ended.update(StreamFormat)

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
