"""Server-sent events: the frames of a stream that was read to its end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kindlm.dataclass import dataclass

DONE = "[DONE]"
"""The data of an event that ends a stream of completions."""

LINE_END = re.compile(r"\r\n|\n|\r")
_FIELD = re.compile(r"\s*(?:data|event):")


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
    for line in [*LINE_END.split(text.removeprefix("\ufeff")), ""]:
        if not line:
            if data:
                yield Event(kind, "\n".join(data))
            kind, data = "message", []
            continue
        field, _, value = line.partition(":")  # a line that begins with a colon is a comment
        value = value.removeprefix(" ")
        if field == "event":
            kind = value or "message"
        elif field == "data":
            data.append(value)


def is_sse(text: str) -> bool:
    """Tell whether a stream that does not say what it is looks like server-sent events."""
    return _FIELD.match(text.removeprefix("\ufeff")) is not None
