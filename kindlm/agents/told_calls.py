"""Tool calls that agents report piece by piece: a result has to find its call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kindlm.agents.reply_parts import AGENT_RULE, MAX_CALLS, refuse_more
from kindlm.transcript import UNNAMED, ToolCall, ToolUse


@dataclass(slots=True)
class Made:
    """A tool call, and its answer once there is one."""

    call: ToolCall
    response: Any = None
    is_answered: bool = False

    def answer(self, response: Any) -> None:
        """Take the answer."""
        self.response, self.is_answered = response, True


class ToldCalls:
    """Calls in their order, found by their ids, or in order while they wait for an answer."""

    def __init__(self) -> None:
        self.made: list[Made] = []
        self._by_id: dict[str, Made] = {}

    @property
    def uses(self) -> tuple[ToolUse, ...]:
        """All calls with their answers, which the agent gave itself."""
        return tuple(ToolUse(made.call, made.response, AGENT_RULE) for made in self.made)

    def add(self, name: str, call_id: str | None, arguments: Any) -> Made:
        """Take a call; one without an id gets one that nothing refers to.

        Raises:
            UnreadableReply: there are more than `MAX_CALLS`.
        """
        refuse_more(len(self.made) + 1, MAX_CALLS, "tool calls")
        made = Made(ToolCall.told(call_id or f"tool-{len(self.made)}", name, arguments))
        self.made.append(made)
        # Some agents use the id of a call again that is done.
        if call_id is not None and (call_id not in self._by_id or self._by_id[call_id].is_answered):
            self._by_id[call_id] = made
        return made

    def add_use(self, use: ToolUse) -> Made:
        """Take a call with the answer that it has, if any."""
        call = use.call
        made = self.add(call.name, call.id or None, call.malformed or call.arguments)
        if use.response is not None:
            made.answer(use.response)
        return made

    def answer(self, call_id: str | None, name: str | None, response: Any) -> bool:
        """Give the call that `find` returns its answer; return whether there is one."""
        made = self.find(call_id, name)
        if made is not None:
            made.answer(response)
        return made is not None

    def by_id(self, call_id: str) -> Made | None:
        """Return the call with an id."""
        return self._by_id.get(call_id)

    def find(self, call_id: str | None, name: str | None) -> Made | None:
        """Return the call that an answer belongs to.

        That is the one with its id, else the first unanswered one with its name, else, if it
        names none, the first unanswered one.
        """
        if call_id in self._by_id:
            return self._by_id[call_id]
        waiting = (made for made in self.made if not made.is_answered)
        return next((made for made in waiting if name in (None, made.call.name)), None)


@dataclass(slots=True)
class PiecedCall:
    """A tool call in the making; `written` are its arguments as far as they came in pieces."""

    name: str = UNNAMED
    written: list[str] = field(default_factory=list)
    arguments: Any = None
    response: Any = None

    def use(self, call_id: str) -> ToolUse:
        """Return the call, whole."""
        arguments = self.arguments
        if arguments is None and self.written:
            arguments = "".join(self.written)
        return ToolUse(ToolCall.told(call_id, self.name, arguments), self.response, AGENT_RULE)
