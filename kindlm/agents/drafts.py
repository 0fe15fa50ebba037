"""Builds an answer, and its tool calls, from the events of a stream.

A result may come long after its call, and has to be matched with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, NamedTuple

from kindlm.agents.reply_parts import AGENT_RULE, MAX_CALLS, NotJson, UnreadableReply, refuse_more
from kindlm.agents.reply_reading import FailedReply, read_spent
from kindlm.agents.tool_entries import failed_tool, names_a_tool
from kindlm.dataclass import dataclass
from kindlm.ports import AgentReply
from kindlm.transcript import UNNAMED, ToolCall, ToolUse
from kindlm.wires import Spent


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
    """The content of an answer, and what its protocol sends back with the next message."""

    reply: AgentReply
    carried: Any = None


class Draft:
    """An answer under construction: a subclass for each format of streams."""

    def take(self, frame: Frame, number: int) -> None:
        """Take an event, whose name is its type, or a line; the first one is number 1.

        Raises:
            FailedReply: it reports a failure of the agent.
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
        """Add an object."""
        raise NotImplementedError

    def add_text(self, _text: str, number: int) -> None:
        """Add a text that is not an event."""
        raise UnreadableReply(f"event {number} is not a JSON object")

    def finished(self) -> Heard:
        """Return the whole answer; raise as `take` does if it is not an answer."""
        raise NotImplementedError

    def spent(self) -> Spent:
        """Return the usage reported so far."""
        return Spent()


def hear(
    draft: Draft, frames: Iterable[Frame], check_end: Callable[[], None] = lambda: None
) -> Heard:
    """Put a stream together; an error has the usage that the stream reported before it.

    `check_end` raises `UnreadableReply` if it broke off. The agent's own report of a failure takes
    precedence, since it is the explanation.
    """
    value = None
    try:
        for number, frame in enumerate(frames, start=1):
            value = frame.value
            draft.take(frame, number)
        heard = draft.finished()
        check_end()
    except (FailedReply, UnreadableReply) as error:
        # An error may have usage beside it, as in an answer that is not a stream.
        error.spent = error.spent or draft.spent() or read_spent(value)
        raise
    return heard


@dataclass(slots=True)
class Made:
    """A tool call as far as it is known; its id is empty if it has none.

    `written` are its arguments if they come in pieces. `response` is its result, once there is one.
    """

    id: str
    name: str = UNNAMED
    arguments: Any = None
    written: list[str] = field(default_factory=list)
    response: Any = None
    is_answered: bool = False

    def answer(self, response: Any, *, failed: object = False) -> None:
        """Take the result, or the report that the tool failed."""
        self.response = failed_tool(response) if failed else response
        self.is_answered = True

    def use(self, call_id: str) -> ToolUse:
        """Return the call with its result, under an id; the agent ran the tool itself."""
        arguments = self.arguments
        if arguments is None and self.written:
            arguments = "".join(self.written)
        return ToolUse(ToolCall.told(call_id, self.name, arguments), self.response, AGENT_RULE)


class ToldCalls:
    """Calls in order. A call is found by its id, or by order while it waits for a result."""

    def __init__(self) -> None:
        self.made: list[Made] = []
        self._by_id: dict[str, Made] = {}

    @property
    def uses(self) -> tuple[ToolUse, ...]:
        """All calls with their results; those without an id get a unique one."""
        return tuple(made.use(made.id or f"tool-{n}") for n, made in enumerate(self.made))

    @property
    def uses_as_told(self) -> tuple[ToolUse, ...]:
        """All calls with their results; those without an id have an empty one."""
        return tuple(made.use(made.id) for made in self.made)

    def add(self, name: str, call_id: str | None, arguments: Any) -> Made:
        """Take a call; raise `UnreadableReply` if there are more than `MAX_CALLS`."""
        refuse_more(len(self.made) + 1, MAX_CALLS, "tool calls")
        made = Made(call_id or "", name, arguments)
        self.made.append(made)
        # Some agents reuse the id of a completed call.
        if call_id is not None and (call_id not in self._by_id or self._by_id[call_id].is_answered):
            self._by_id[call_id] = made
        return made

    def add_use(self, use: ToolUse) -> Made:
        """Add a call with its result, if any."""
        call = use.call
        made = self.add(call.name, call.id or None, call.malformed or call.arguments)
        if use.response is not None:
            made.answer(use.response)
        return made

    def under(self, call_id: str) -> Made:
        """Return the call with an id; create it if this is the first report of it."""
        return self.by_id(call_id) or self.add(UNNAMED, call_id, None)

    def answer(
        self, call_id: str | None, name: str | None, response: Any, *, failed: object = False
    ) -> bool:
        """Give the result to the call that `find` returns; return whether there is one."""
        made = self.find(call_id, name)
        if made is not None:
            made.answer(response, failed=failed)
        return made is not None

    def by_id(self, call_id: str) -> Made | None:
        """Return the call with an id."""
        return self._by_id.get(call_id)

    def find(self, call_id: str | None, name: str | None) -> Made | None:
        """Return the call that a result belongs to.

        That is the one with its id, else the first one by its name without a result. If the result
        has no name, it is the first call without a result.
        """
        if call_id in self._by_id:
            return self._by_id[call_id]
        waiting = (made for made in self.made if not made.is_answered)
        return next((made for made in waiting if name in (None, made.name)), None)
