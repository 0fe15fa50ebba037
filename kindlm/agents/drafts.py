"""Builds an answer, and its tool calls, from the events of a stream.

A tool result may arrive long after its call, and is matched with it by id or by order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, NamedTuple

from kindlm.agents.hidden_calls import calls_anywhere
from kindlm.agents.reply_parts import AGENT_RULE, MAX_CALLS, NotJson, UnreadableReply, refuse_more
from kindlm.agents.reply_usage import read_spent
from kindlm.agents.tool_entries import failed_tool, names_a_tool
from kindlm.dataclass import dataclass
from kindlm.ports import AgentReply
from kindlm.same_calls import completed, is_repeated_by
from kindlm.transcript import UNNAMED, ToolCall, ToolUse
from kindlm.wires import Spent


class Frame(NamedTuple):
    """An event of a stream, or a line of bare text, whose `type` is empty.

    `value` is the JSON value of `data`. It is None for bare text, and the error if `data` begins
    like a JSON object but is not valid.
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
class ParsedAnswer:
    """The reply in an answer, and what its protocol sends back with the next message."""

    reply: AgentReply
    carried: Any = None


class Draft:
    """An answer under construction; each format of streams has a subclass."""

    def take(self, frame: Frame, number: int) -> None:
        """Add an event or a line; the first has number 1.

        Raises:
            FailedReply: it reports a failure of the agent.
            UnreadableReply: it cannot be read, so a tool call may be missing.
        """
        if isinstance(frame.value, NotJson):
            raise frame.value
        if isinstance(frame.value, dict):
            named = {} if frame.type == "message" else {"type": frame.type}
            self.add(named | frame.value, number)
        elif frame.type == "error":
            self.add({"type": "error", "message": frame.text}, number)
        elif names_a_tool(frame.type) or calls_anywhere(frame.value):
            self.add({"type": "tool"}, number)
        else:
            self.add_text(frame.text, number)

    def add(self, event: Mapping[str, Any], number: int) -> None:
        """Add an event whose data is an object; its `type` is the name of the event."""
        raise NotImplementedError

    def add_text(self, _text: str, number: int) -> None:
        """Add data that is not an object."""
        raise UnreadableReply(f"event {number} is not a JSON object")

    def finished(self) -> ParsedAnswer:
        """Return the whole answer; raises like `take` if it is not an answer."""
        raise NotImplementedError

    def spent(self) -> Spent:
        """Return the usage reported so far."""
        return Spent()


def assemble(
    draft: Draft, frames: Iterable[Frame], check_end: Callable[[], None] = lambda: None
) -> ParsedAnswer:
    """Add all frames of a stream to a draft, and return the finished answer.

    An error has the usage that the stream reported before it. `check_end` raises `UnreadableReply`
    if the stream broke off; a failure that the agent reports comes first, since it explains why.
    """
    value = None
    try:
        for number, frame in enumerate(frames, start=1):
            value = frame.value
            draft.take(frame, number)
        answer = draft.finished()
        check_end()
    except UnreadableReply as error:
        # The event that reports the error may contain usage, too.
        error.spent = error.spent or draft.spent() or read_spent(value)
        raise
    return answer


@dataclass(slots=True)
class ReportedCall:
    """A tool call under construction; `written` has arguments that arrive in pieces."""

    id: str
    name: str = UNNAMED
    arguments: Any = None
    written: list[str] = field(default_factory=list)
    response: Any = None
    is_answered: bool = False

    def answer(self, response: Any, *, failed: object = False) -> None:
        """Add the result, or the error if the tool `failed`."""
        self.response = failed_tool(response) if failed else response
        self.is_answered = True

    def use(self) -> ToolUse:
        """Return the call with its result."""
        arguments = self.arguments
        if arguments is None and self.written:
            arguments = "".join(self.written)
        return ToolUse(ToolCall.parse(self.id, self.name, arguments), self.response, AGENT_RULE)


class ReportedCalls:
    """The tool calls of an answer, in order."""

    def __init__(self) -> None:
        self.entries: list[ReportedCall] = []
        self._by_id: dict[str, ReportedCall] = {}

    @property
    def uses(self) -> tuple[ToolUse, ...]:
        """All calls with their results; a call without an id has an empty one."""
        return tuple(call.use() for call in self.entries)

    def add(self, name: str, call_id: str | None, arguments: Any) -> ReportedCall:
        """Add a call; raises `UnreadableReply` if there are more than `MAX_CALLS`."""
        refuse_more(len(self.entries) + 1, MAX_CALLS, "tool calls")
        call = ReportedCall(call_id or "", name, arguments)
        self.entries.append(call)
        # Some agents reuse the id of a completed call.
        if call_id is not None and (call_id not in self._by_id or self._by_id[call_id].is_answered):
            self._by_id[call_id] = call
        return call

    def add_use(self, use: ToolUse) -> ReportedCall:
        """Add a call with its result, if any."""
        name, call_id = use.call.name, use.call.id or None
        call = self.add(name, call_id, use.call.malformed or use.call.arguments)
        if use.response is not None:
            call.answer(use.response)
        return call

    def merge_use(self, use: ToolUse) -> None:
        """Add a call, or complete the call with its id that it repeats."""
        known = self.by_id(use.call.id)
        if known is None or not is_repeated_by(known.use().call, use.call):
            call = self.add_use(use)
            if call.id:
                self._by_id[call.id] = call
            return
        whole = completed(known.use(), use)
        known.arguments = whole.call.malformed or whole.call.arguments
        if whole.response is not None:
            known.answer(whole.response)

    def begin(self, call_id: str, name: str | None) -> ReportedCall:
        """Return the call that an event begins or continues.

        An id of a call that has its result, or another name, is reused for another call.
        """
        call = self.by_id(call_id)
        if call is None or call.is_answered or (name and call.name not in (UNNAMED, name)):
            call = self._by_id[call_id] = self.add(UNNAMED, call_id, None)
        call.name = name or call.name
        return call

    def under(self, call_id: str) -> ReportedCall:
        """Return the call with an id; adds it if it is new."""
        return self.by_id(call_id) or self.add(UNNAMED, call_id, None)

    def answer(
        self, call_id: str | None, name: str | None, response: Any, *, failed: object = False
    ) -> bool:
        """Add a result to the call that `find` returns; returns whether there is such a call."""
        call = self.find(call_id, name)
        if call is not None:
            call.answer(response, failed=failed)
        return call is not None

    def by_id(self, call_id: str) -> ReportedCall | None:
        return self._by_id.get(call_id)

    def find(self, call_id: str | None, name: str | None) -> ReportedCall | None:
        """Return the call that a result belongs to.

        That is the call with its id, else the first call without a result that has its name. If
        the result has no name, it is the first call without a result.
        """
        if call_id in self._by_id:
            return self._by_id[call_id]
        waiting = (call for call in self.entries if not call.is_answered)
        return next((call for call in waiting if name in (None, call.name)), None)
