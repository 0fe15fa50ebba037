"""Tools of a case: how a model or an agent is told of them, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kindlm.formats.evalview.schema import CaseConfig, ToolDefinitionConfig, ToolMock
from kindlm.suite import SimulatedTool, ToolAnswer


def compile_tools(case: CaseConfig) -> tuple[SimulatedTool, ...]:
    """Return the tools that a case defines, and those that it answers for."""
    defined = {tool.name: tool for tool in case.tools or ()}
    mocks = (case.mocks.tool_mocks if case.mocks else None) or ()
    names = dict.fromkeys([*defined, *(mock.tool for mock in mocks)])
    return tuple(
        _tool(name, defined.get(name), [mock for mock in mocks if mock.tool == name])
        for name in names
    )


def told_tools(case: CaseConfig) -> list[dict[str, Any]]:
    """Return the definitions of tools as they are in the file, for the context of an agent."""
    return [
        {key: getattr(tool, key) for key in type(tool).model_fields if key in tool.model_fields_set}
        for tool in case.tools or ()
    ]


def _tool(
    name: str, defined: ToolDefinitionConfig | None, mocks: Sequence[ToolMock]
) -> SimulatedTool:
    answers = tuple(_answer(mock) for mock in mocks)
    if defined is None:
        return SimulatedTool(name, answers=answers)
    schema = defined.input_schema if defined.parameters is None else defined.parameters
    return SimulatedTool(name, defined.description, schema, answers)


def _answer(mock: ToolMock) -> ToolAnswer:
    return ToolAnswer(
        when=mock.match_params,
        then=mock.returns if mock.error is None else {"error": mock.error},
        delay_ms=round(mock.latency_ms or 0),
    )
