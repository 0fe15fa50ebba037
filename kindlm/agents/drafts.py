"""Answers that come as a stream: what the formats of all streams have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kindlm.agents.reply_parts import NotJson, UnreadableReply
from kindlm.agents.reply_reading import FailedReply, read_spent
from kindlm.agents.tool_entries import names_a_tool
from kindlm.dataclass import dataclass
from kindlm.ports import AgentReply
from kindlm.wires.answer import Spent


class Frame(NamedTuple):
    """An event as it came, or a line of bare text, which has no `type`.

    `value` is the JSON value of its data. It is None for bare text, and the error for data that
    begins like a JSON object but cannot be read as one.
    """

    type: str
    data: str
    value: Any

    @property
    def text(self) -> str:
        """The text of an event whose data is not an object; empty for null."""
        if self.type and isinstance(self.value, str):
            return self.value
        return "" if self.type and self.data == "null" else self.data


@dataclass(frozen=True, slots=True)
class Heard:
    """What an answer says, and what its protocol sends back with the next message."""

    reply: AgentReply
    carried: Any = None


class Draft:
    """An answer in the making: a subclass for each format of streams."""

    def take(self, frame: Frame, number: int) -> None:
        """Take an event, whose name is its type, or a line; the first one is number 1.

        Raises:
            FailedReply: it says that the agent failed.
            UnreadableReply: it cannot be read, so that a tool call may be missing.
        """
        if isinstance(frame.value, NotJson):
            raise frame.value
        if isinstance(frame.value, dict):
            named = {} if frame.type == "message" else {"type": frame.type}
            self.add(named | frame.value, number)
        elif frame.type == "error":
            self.add({"type": "error", "message": frame.text}, number)
        elif names_a_tool(frame.type):
            self.add({"type": frame.type}, number)
        else:
            self.add_text(frame.text, number)

    def add(self, event: Mapping[str, Any], number: int) -> None:
        """Take an object."""
        raise NotImplementedError

    def add_text(self, _text: str, number: int) -> None:
        """Take a text that is no event."""
        raise UnreadableReply(f"event {number} is not a JSON object")

    def finished(self) -> Heard:
        """Return the whole; raise as `take` does if it is no answer."""
        raise NotImplementedError

    def spent(self) -> Spent:
        """Return what was reported so far."""
        return Spent()


def hear(
    draft: Draft, frames: Iterable[Frame], check_end: Callable[[], None] = lambda: None
) -> Heard:
    """Put a stream together; an error has what the stream says that was spent until then.

    `check_end` raises `UnreadableReply` if it broke off. What the agent says of its own failure
    comes first: it explains why.
    """
    value = None
    try:
        for number, frame in enumerate(frames, start=1):
            value = frame.value
            draft.take(frame, number)
        heard = draft.finished()
        check_end()
    except (FailedReply, UnreadableReply) as error:
        # An error may have it beside it, as one that is no stream has.
        error.spent = error.spent or draft.spent() or read_spent(value)
        raise
    return heard
