"""Tools that a test simulates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kindlm.ports.models import ToolDefinition
from kindlm.suite import SimulatedTool
from kindlm.transcript import ToolCall, ToolProblem, ToolUse

__all__ = ["AnswerTool", "AnsweredCall", "SimulatedAnswer", "SimulatorFactory", "ToolSimulator"]


@dataclass(frozen=True, slots=True)
class SimulatedAnswer:
    """What a simulated tool answers, and which rule said so.

    `delay_s` is how long it takes. `text` is what the model gets to read instead of the response:
    an answer that is no JSON. `problems` are what was wrong with the call.
    """

    response: Any
    rule: str
    delay_s: float = 0.0
    text: str | None = None
    problems: tuple[ToolProblem, ...] = ()


class ToolSimulator(Protocol):
    """Answers the tool calls of one execution; may keep state for as long as it lasts."""

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The tools as the model is told of them."""
        ...

    async def answer(self, call: ToolCall) -> SimulatedAnswer:
        """Answer one call once the one before is answered.

        An unknown tool gets an error object, never an exception.
        """
        ...


SimulatorFactory = Callable[[Sequence[SimulatedTool]], ToolSimulator]


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A tool call that was answered, and what whoever called the tool gets to read as the answer.

    That is the response as JSON, unless the answer is one that is no JSON.
    """

    use: ToolUse
    text: str


AnswerTool = Callable[[ToolCall, int], Awaitable[AnsweredCall]]
"""Answers a tool call with what the test simulates, and records both.

The number is how many calls of tools of its own the agent has made before, for the same message:
so the record has all calls in their order. Calls are answered in the order they are asked for;
those that are asked for at once take as long as the slowest.
"""
