"""How the events of a stream are framed: one JSON object in a line, or server-sent events.

What is no event is a piece of the text. A line or frame that begins as a JSON object and is none
was cut off or is broken: it makes the whole stream unreadable, as nobody knows what it said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kindlm.agents.agent_events import Piece
from kindlm.agents.reply_reading import UnreadableReply
from kindlm.agents.tool_entries import names_a_tool
from kindlm.strict_json import KeyTwiceError, parse_json, unique_keys

DONE = "[DONE]"
"""The data of an event that ends a stream of completions."""

_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its type, and its data lines as one text."""

    type: str
    data: str


def parse_events(text: str) -> Iterator[Event]:
    """Return the events of a stream that was read to its end.

    One rule is not kept: an event that the end of the stream cuts off counts. Servers forget the
    empty line after the last event, and the event would be lost without a trace.
    """
    kind, data = "message", list[str]()
    for line in [*_LINE_END.split(text.removeprefix("\ufeff")), ""]:
        if not line:
            if data:
                yield Event(kind, "\n".join(data))
            kind, data = "message", []
            continue
        field, _, value = line.partition(":")  # a line that begins with a colon is a comment
        value = value.removeprefix(" ")
        if field == "event":
            kind = value
        elif field == "data":
            data.append(value)


_FIELD = re.compile(r"\s*(?:data|event):")
_EVENT = re.compile(r"[\ufeff\s]*(?:(?:event|id|retry):[^\r\n]*[\r\n]+)*data: ?\{")
_OBJECT = re.compile(r"\s*\{\s*(?:\"|$)")


def is_sse(text: str) -> bool:
    """Tell whether a stream that does not say what it is looks like server-sent events."""
    return _FIELD.match(text.removeprefix("\ufeff")) is not None


def holds_events(text: str) -> bool:
    """Tell whether a text is server-sent events that hold JSON, whatever it was sent as."""
    return _EVENT.match(text) is not None


def begins_as_object(text: str) -> bool:
    """Tell whether a text begins as a JSON object does."""
    return _OBJECT.match(text.removeprefix("\ufeff")) is not None


def json_lines(text: str) -> Iterator[Piece]:
    """Return the pieces of a stream of lines; between lines of bare text there is a space."""
    bare: str | None = None
    for number, written in enumerate(_LINE_END.split(text.removeprefix("\ufeff")), start=1):
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
    for line in _LINE_END.split(text.removeprefix("\ufeff")):
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
        UnreadableReply: it begins as an object and is none, or has a key twice; `place` tells
            where it stands.
    """
    try:
        return parse_json(text, unique_keys)
    except ValueError as error:
        if _OBJECT.match(text) or isinstance(error, KeyTwiceError):
            raise UnreadableReply(f"{place} is no JSON: {error}") from None
        return None
