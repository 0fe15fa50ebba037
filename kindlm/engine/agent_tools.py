"""The tool calls of a conversation with an agent: its own, and those the test answers for it.

Both are numbered in one row, as the agent made them. What is simulated is recorded while the agent
still works on its answer; its own calls become known with the answer, and go where it says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kindlm.engine.conversation import ToolRecorder
from kindlm.engine.recording import call_as_recorded
from kindlm.ports import AnsweredCall, AnswerTool
from kindlm.transcript import ToolCall, ToolUse

__all__ = ["AgentTools", "PlacedUse"]


@dataclass(frozen=True, slots=True)
class PlacedUse:
    """A tool call at its position among those of the execution, from 0.

    One that was `simulated` has been recorded already.
    """

    index: int
    use: ToolUse
    simulated: bool = False


class AgentTools:
    """Numbers the tool calls of one conversation; `tools` answers and records those it simulates.

    Without `tools` nothing is simulated.
    """

    def __init__(self, tools: ToolRecorder | None) -> None:
        self._tools = tools
        self._one_by_one = asyncio.Lock()
        self._call = 0
        self._first = 0
        self._next = 0
        self._simulated: dict[int, ToolUse] = {}

    @property
    def answer(self) -> AnswerTool | None:
        """What an agent has its tool calls answered by; see `ports.AgentRequest`."""
        return None if self._tools is None else self._answer

    @property
    def has_answered(self) -> bool:
        """Whether anything was simulated since the call of the agent began."""
        return bool(self._simulated)

    def begin(self, call: int) -> None:
        """Begin with the call of the agent that has this number."""
        self._call = call
        self._first = self._next
        self._simulated = {}

    def place(self, reported: Sequence[ToolUse]) -> list[PlacedUse]:
        """Return all tool calls that belong to an answer, in order.

        The agent's own are those of `reported` that were not simulated; they fill the places that
        were left for them, the rest comes behind.
        """
        known = {use.call.id for use in self._simulated.values()}
        own = iter([use for use in reported if use.call.id not in known])
        placed = list(self._placed(own))
        self._next = placed[-1].index + 1 if placed else self._next
        return placed

    def _placed(self, own: Iterator[ToolUse]) -> Iterator[PlacedUse]:
        index = self._first
        left = dict(self._simulated)
        while True:
            if index in left:
                yield PlacedUse(index, left.pop(index), simulated=True)
            elif (use := next(own, None)) is not None:
                yield PlacedUse(index, use)
            elif not left:
                return
            index += 1

    async def _answer(self, call: ToolCall, own: int) -> AnsweredCall:
        assert self._tools is not None
        async with self._one_by_one:
            index = max(self._next, self._first + len(self._simulated) + own)
            self._next = index + 1
            answered, delay_s = await self._tools.answer_one(
                call_as_recorded(call), self._call, index
            )
            self._simulated[index] = answered.use
        await self._tools.wait(delay_s)
        return answered
