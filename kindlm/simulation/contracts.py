"""Holds calls and answers of simulated tools against the JSON Schemas that the tools declare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kindlm.json_schema import UndecidableSchemaError, schema_issues
from kindlm.suite import SimulatedTool
from kindlm.transcript import ToolProblem, ToolProblemKind
from kindlm.wording import shown

__all__ = ["argument_problems", "result_problems"]

_MAX_LISTED = 5


def argument_problems(tool: SimulatedTool, arguments: Any) -> Iterator[ToolProblem]:
    """Yield what is wrong with the arguments of a call: they break the tool's `parameters`."""
    if tool.parameters is not None and (broken := _broken(tool.parameters, arguments)):
        message = f"The arguments of {shown(tool.name)} do not fit its parameters: {broken}"
        yield ToolProblem(ToolProblemKind.ARGUMENTS, message)


def result_problems(tool: SimulatedTool, response: Any) -> Iterator[ToolProblem]:
    """Yield what is wrong with an answer: it breaks the tool's `resultSchema`.

    That is a mistake in the suite, not one of the model.
    """
    if tool.result_schema is not None and (broken := _broken(tool.result_schema, response)):
        message = f"The simulated answer of {shown(tool.name)} breaks its resultSchema: {broken}"
        yield ToolProblem(ToolProblemKind.RESULT, message)


def _broken(schema: Any, value: Any) -> str | None:
    """Return where a value does not fit, in words; None if it does."""
    try:
        issues = schema_issues(schema, value)
    except UndecidableSchemaError as error:
        return f"it could not be checked: {error}"
    if not issues:
        return None
    listed = "; ".join(f"{issue.path}: {issue.message}" for issue in issues[:_MAX_LISTED])
    more = len(issues) - _MAX_LISTED
    return f"{listed}; and {more} more" if more > 0 else listed
