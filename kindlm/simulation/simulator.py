"""Answers the tool calls of one execution from what the suite says about each tool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kindlm.matching import matches
from kindlm.ports import SimulatedAnswer, ToolDefinition
from kindlm.suite import SimulatedTool
from kindlm.transcript import ToolCall

__all__ = ["SimulatedTools"]

_NO_PARAMETERS = {"type": "object", "properties": {}}


class SimulatedTools:
    """The simulated tools of one execution; the class is itself a `SimulatorFactory`.

    The first answer whose `when` matches the arguments wins, else the default. A call that has no
    answer gets an error object as its result, so that the conversation goes on as it would with a
    real tool that failed.
    """

    def __init__(self, tools: Sequence[SimulatedTool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._definitions = tuple(_definition(tool) for tool in self._tools.values())

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The tools as the model is told of them."""
        return self._definitions

    def answer(self, call: ToolCall) -> SimulatedAnswer:
        """Answer one call; names compare exactly."""
        tool = self._tools.get(call.name)
        if tool is None:
            return _error(call, "unknown tool", f"There is no tool named {call.name!r}.")
        if call.malformed is not None:
            message = f"The arguments of {call.name!r} were not a JSON object."
            return _error(call, "malformed arguments", message)
        for index, answer in enumerate(tool.answers):
            if matches(answer.when, call.arguments):
                return SimulatedAnswer(answer.then, f"responses[{index}]")
        if tool.has_default:
            return SimulatedAnswer(tool.default, "defaultResponse")
        message = f"{call.name!r} has no response for these arguments."
        return _error(call, "no response", message)


def _definition(tool: SimulatedTool) -> ToolDefinition:
    parameters = _NO_PARAMETERS if tool.parameters is None else tool.parameters
    return ToolDefinition(tool.name, tool.description, parameters)


def _error(call: ToolCall, rule: str, message: str) -> SimulatedAnswer:
    response: dict[str, Any] = {"error": message, "tool": call.name}
    return SimulatedAnswer(response, rule)
