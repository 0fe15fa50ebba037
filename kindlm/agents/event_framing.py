"""How the events of a stream are framed: one JSON object in a line, or server-sent events.

What is no event is a piece of the text. A line or frame that begins as a JSON object and is none
was cut off or is broken: it makes the whole stream unreadable, as nobody knows what it said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kindlm.agents.agent_events import Piece
from kindlm.agents.reply_reading import UnreadableReply
from kindlm.agents.sse import DONE, parse_events
from kindlm.strict_json import parse_json

__all__ = ["is_sse", "json_lines", "json_value", "sse_frames"]

_LINE_END = re.compile(r"\r\n|\n|\r")
_FIELD = re.compile(r"\s*(?:data|event):")
_OBJECT = re.compile(r"\s*\{\s*(?:\"|$)")


def is_sse(text: str) -> bool:
    """Tell whether a stream that does not say what it is looks like server-sent events."""
    return _FIELD.match(text.removeprefix("\ufeff")) is not None


def json_lines(text: str) -> Iterator[Piece]:
    """Return the pieces of a stream of lines; between lines of bare text there is a space."""
    bare: str | None = None
    for number, written in enumerate(_LINE_END.split(text.removeprefix("\ufeff")), start=1):
        line = written.strip()
        if not line:
            continue
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
        else:
            yield value if isinstance(value, str) else frame.data


def json_value(text: str, place: str) -> Any:
    """Return the JSON value of a text, None if it is bare.

    Raises:
        UnreadableReply: it begins as an object and is none; `place` tells where it stands.
    """
    try:
        return parse_json(text)
    except ValueError as error:
        if _OBJECT.match(text):
            raise UnreadableReply(f"{place} is no JSON: {error}") from None
        return None
