"""Streams of events, whichever adapter they come through.

A stream in the format of a model or a framework is read as that. What other events mean, the
adapter says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kindlm.agents.agent_events import Heard, Piece
from kindlm.agents.event_framing import json_lines, line_events, sse_frames
from kindlm.agents.reply_reading import Reading, UnreadableReply
from kindlm.agents.sse import Event, parse_events
from kindlm.agents.stream_ends import StreamFormat, end_of
from kindlm.agents.stream_reading import read_stream
from kindlm.agents.ui_messages import hear_ui_messages

__all__ = ["EventStream", "hear_events"]

_OF_MODELS = frozenset({StreamFormat.CHAT, StreamFormat.ANTHROPIC})
_UNREAD = (StreamFormat.RESPONSES, StreamFormat.AG_UI, StreamFormat.GEMINI)


@dataclass(frozen=True, slots=True)
class EventStream:
    """A stream as it came: server-sent events, or else JSON Lines.

    `has_end` tells that the transport said where it ends, and did not just close.
    """

    text: str
    is_sse: bool
    has_end: bool

    def events(self) -> Iterator[Event]:
        """Return its events; bare lines of text are none."""
        return parse_events(self.text) if self.is_sse else line_events(self.text)

    def pieces(self) -> Iterator[Piece]:
        """Return its JSON objects, and what stands between them."""
        return sse_frames(self.text) if self.is_sse else json_lines(self.text)


def hear_events(
    stream: EventStream, reading: Reading, otherwise: Callable[[], Heard] | None = None
) -> Heard:
    """Read a stream by its format; one that has none is read `otherwise`, or as a model's.

    Raises:
        AgentFailed: it says that the agent failed.
        UnreadableReply: it broke off, is in a format that is not read, or has no answer.
    """
    end = end_of(stream.events())
    unread = next((known for known in _UNREAD if known in end.formats), None)
    if unread is not None:
        raise UnreadableReply(f"streams of {unread} are not read")
    if StreamFormat.UI_MESSAGES in end.formats:
        heard = hear_ui_messages(stream.pieces())
    elif otherwise is not None and _OF_MODELS.isdisjoint(end.formats):
        heard = otherwise()
    else:
        heard = Heard(read_stream(stream.events(), reading))
    # What the agent says of its own failure comes first: it explains why the stream broke off.
    end.check(has_end=stream.has_end)
    return heard
