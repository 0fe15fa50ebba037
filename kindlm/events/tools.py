"""Events of simulated tools: what the model asked of them, and what they answered."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kindlm.events.base import Authored, Data, Payload
from kindlm.transcript import ToolProblemKind

__all__ = [
    "ToolCalled",
    "ToolProblemData",
    "ToolSimulated",
]


class ToolCalled(Payload):
    """The model under test called a simulated tool."""

    type: Literal["tool.called"] = "tool.called"
    index: int = Field(description="position among the tool calls of the execution, from 0")
    call: int = Field(description="the call whose answer asked for it")
    name: str = Field(alias="gen_ai.tool.name")
    call_id: str = Field(alias="gen_ai.tool.call.id")
    arguments: Authored


class ToolProblemData(Data):
    """What was wrong with a call of a simulated tool."""

    kind: ToolProblemKind
    message: Authored


class ToolSimulated(Payload):
    """A simulated tool answered."""

    type: Literal["tool.simulated"] = "tool.simulated"
    index: int
    call_id: str = Field(alias="gen_ai.tool.call.id")
    rule: str = Field(
        description="responses[n], with its fault if it has one, cassette, defaultResponse, or"
        " unknown tool"
    )
    response: Authored
    problems: list[ToolProblemData] = []
