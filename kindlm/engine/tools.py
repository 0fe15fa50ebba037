"""The tool calls of one execution: answers and records those that the test simulates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence

from kindlm.events import AgentToolUse, ToolCalled, ToolSimulated
from kindlm.ports import AnsweredCall, AnswerTool, Clock, Recorder, ToolSimulator
from kindlm.transcript import ToolCall, ToolUse, storable_json

__all__ = ["AgentTools", "Tools"]


class Tools:
    """Answers the tool calls of one execution and records each.

    Those of a model are numbered from 0 as they come; whoever calls `answer_one` numbers them.
    `definitions` are sent to the model.
    """

    def __init__(self, simulator: ToolSimulator, recorder: Recorder, clock: Clock) -> None:
        self._simulator = simulator
        self._recorder = recorder
        self._clock = clock
        self._count = 0
        self.definitions = simulator.definitions

    async def answer(self, calls: Sequence[ToolCall], number: int) -> list[AnsweredCall]:
        """Answer the calls of one reply, in order; takes as long as the slowest of them."""
        answered: list[AnsweredCall] = []
        slowest_s = 0.0
        for call in calls:
            used, delay_s = await self.answer_one(call, number, self._count)
            self._count += 1
            answered.append(used)
            slowest_s = max(slowest_s, delay_s)
        if slowest_s:
            await self._clock.sleep(slowest_s)
        return answered

    async def wait(self, delay_s: float) -> None:
        """Wait as long as a simulated tool takes."""
        if delay_s:
            await self._clock.sleep(delay_s)

    async def answer_one(
        self, call: ToolCall, number: int, index: int
    ) -> tuple[AnsweredCall, float]:
        """Return the result of a tool call, and how many seconds it is to take.

        `number` is that of the call to the model or agent that asked for it, `index` the position
        among the tool calls of the execution.
        """
        self._recorder.record(
            ToolCalled(
                index=index,
                call=number,
                name=call.name,
                call_id=call.id,
                arguments=call.written,
            )
        )
        answer = await self._simulator.answer(call)
        response = storable_json(answer.response)
        self._recorder.record(
            ToolSimulated(
                index=index,
                call_id=call.id,
                rule=answer.rule,
                response=response,
                problems=answer.problems,
            )
        )
        text = answer.text
        if text is None:
            # A text goes to the model as it is; anything else as JSON.
            is_text = isinstance(response, str)
            text = response if is_text else json.dumps(response, ensure_ascii=False)
        used = ToolUse(call, response, answer.rule, answer.problems)
        return AnsweredCall(used, text), answer.delay_s


class AgentTools:
    """Numbers the tool calls of one conversation with an agent: its own, and simulated ones.

    Both are numbered in one row, as the agent made them. What is simulated is recorded while the
    agent still works on its answer; its own calls become known with the answer, and go where it
    says. Without `tools` nothing is simulated.
    """

    def __init__(self, tools: Tools | None) -> None:
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

    def place(self, reported: Sequence[ToolUse]) -> list[AgentToolUse]:
        """Return all tool calls that belong to an answer, in order.

        The agent's own are those of `reported` that were not simulated; they fill the places that
        were left for them, the rest comes behind.
        """
        known = {use.call.id for use in self._simulated.values()}
        own = iter([use for use in reported if use.call.id not in known])
        placed = list(self._placed(own))
        self._next = placed[-1].index + 1 if placed else self._next
        return placed

    def _placed(self, own: Iterator[ToolUse]) -> Iterator[AgentToolUse]:
        index = self._first
        left = dict(self._simulated)
        while True:
            if index in left:
                yield AgentToolUse(index=index, use=left.pop(index), simulated=True)
            elif (use := next(own, None)) is not None:
                yield AgentToolUse(index=index, use=use)
            elif not left:
                return
            index += 1

    async def _answer(self, call: ToolCall, own: int) -> AnsweredCall:
        assert self._tools is not None
        async with self._one_by_one:
            index = max(self._next, self._first + len(self._simulated) + own)
            self._next = index + 1
            answered, delay_s = await self._tools.answer_one(call.storable(), self._call, index)
            self._simulated[index] = answered.use
        await self._tools.wait(delay_s)
        return answered
