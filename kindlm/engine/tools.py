"""The tool calls of one conversation: answers and records those that the test simulates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from kindlm.engine.simulation import SimulatedTools, as_text
from kindlm.events import AgentToolUse, Payload, ToolCalled, ToolSimulated
from kindlm.ports import AnsweredCall, Clock
from kindlm.transcript import ToolCall, ToolUse, storable_json


class Tools:
    """Answers tool calls of a model or an agent, and numbers them from 0 as they were made.

    A model's are answered once its answer is here. An agent asks while it still works on its
    answer; calls of tools of its own become known with the answer, and go where it says.
    `definitions` are sent to the model.
    """

    def __init__(
        self, simulator: SimulatedTools, record: Callable[[Payload], None], clock: Clock
    ) -> None:
        self._simulator = simulator
        self._record = record
        self._clock = clock
        self._one_by_one = asyncio.Lock()
        self._call = 0
        self._first = self._next = 0
        self._simulated: dict[int, ToolUse] = {}
        self.definitions = simulator.definitions

    @property
    def has_answered(self) -> bool:
        """Whether anything was simulated since the call began."""
        return bool(self._simulated)

    def begin(self, call: int) -> None:
        """Begin with the call to the model or agent that has this number."""
        self._call = call
        self._first = self._next
        self._simulated = {}

    async def answer_all(self, calls: Sequence[ToolCall]) -> list[AnsweredCall]:
        """Answer the calls of a model's reply, in order; takes as long as the slowest of them."""
        answered: list[AnsweredCall] = []
        slowest_s = 0.0
        for call in calls:
            one, delay_s = await self._answer(call)
            answered.append(one)
            slowest_s = max(slowest_s, delay_s)
        if slowest_s:
            await self._clock.sleep(slowest_s)
        return answered

    async def answer(self, call: ToolCall, own: int) -> AnsweredCall:
        """Answer a call of an agent that waits for it; implements `ports.AnswerTool`."""
        async with self._one_by_one:
            answered, delay_s = await self._answer(call.storable(), own)
        if delay_s:
            await self._clock.sleep(delay_s)
        return answered

    async def _answer(self, call: ToolCall, own: int = 0) -> tuple[AnsweredCall, float]:
        """Return the result of a tool call, and how many seconds it is to take."""
        index = max(self._next, self._first + len(self._simulated) + own)
        self._next = index + 1
        self._record(
            ToolCalled(
                index=index,
                call=self._call,
                name=call.name,
                call_id=call.id,
                arguments=call.written,
            )
        )
        answer = await self._simulator.answer(call)
        response = storable_json(answer.response)
        self._record(
            ToolSimulated(
                index=index,
                call_id=call.id,
                rule=answer.rule,
                response=response,
                problems=answer.problems,
            )
        )
        self._simulated[index] = use = ToolUse(call, response, answer.rule, answer.problems)
        text = as_text(response) if answer.text is None else answer.text
        return AnsweredCall(use, text), answer.delay_s

    def place(self, reported: Sequence[ToolUse]) -> list[AgentToolUse]:
        """Return all tool calls that belong to an agent's answer, in order, as they are stored.

        The agent's own are those of `reported` that were not simulated; they fill the places that
        were left for them, the rest comes behind.
        """
        simulated = {use.call.id for use in self._simulated.values()}
        told = [replace(use, call=use.call.storable()) for use in reported]
        own = iter([use for use in told if use.call.id not in simulated])
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
                use = replace(use, response=storable_json(use.response))
                yield AgentToolUse(index=index, use=use)
            elif not left:
                return
            index += 1
