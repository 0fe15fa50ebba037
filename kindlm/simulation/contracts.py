"""Holds calls and answers of simulated tools against the JSON Schemas that the tools declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from kindlm.json_schema import UndecidableSchemaError, schema_issues
from kindlm.suite import SimulatedTool
from kindlm.transcript import ToolProblem, ToolProblemKind
from kindlm.wording import listed, shown

__all__ = ["argument_problems", "is_slow", "result_problems"]

_MAX_LISTED = 5
_SMALL = 200

_PATTERNS = {"pattern", "patternProperties"}


def is_slow(schema: Any, value: Any) -> bool:
    """Tell whether it can take long to validate a value: patterns, or a value of many parts."""
    # Where a property is called "pattern" this says so needlessly, which only costs a moment.
    has_patterns = any(
        isinstance(part, Mapping) and not _PATTERNS.isdisjoint(part) for part in _parts(schema)
    )
    return has_patterns or next(islice(_parts(value), _SMALL, None), None) is not None


def _parts(value: Any) -> Iterator[Any]:
    """Yield a JSON value and all that is inside; no depth overflows the stack."""
    pending = [value]
    while pending:
        part = pending.pop()
        yield part
        match part:
            case Mapping():
                pending.extend(part.values())
            case list() | tuple():
                pending.extend(part)


def argument_problems(tool: SimulatedTool, arguments: Any) -> tuple[ToolProblem, ...]:
    """Return what is wrong with the arguments of a call: they break the tool's `parameters`."""
    broken = _broken(tool.parameters, arguments)
    if broken is None:
        return ()
    message = f"The arguments of {shown(tool.name)} do not fit its parameters: {broken}."
    return (ToolProblem(ToolProblemKind.ARGUMENTS, message),)


def result_problems(tool: SimulatedTool, response: Any) -> tuple[ToolProblem, ...]:
    """Return what is wrong with an answer: it breaks the tool's `resultSchema`.

    That is a mistake in the suite, not one of the model.
    """
    broken = _broken(tool.result_schema, response)
    if broken is None:
        return ()
    message = f"The simulated answer of {shown(tool.name)} breaks its resultSchema: {broken}."
    return (ToolProblem(ToolProblemKind.RESULT, message),)


def _broken(schema: Any, value: Any) -> str | None:
    """Return where a value does not fit, in words; None if it does, or there is no schema."""
    if schema is None:
        return None
    try:
        issues = schema_issues(schema, value)
    except UndecidableSchemaError as error:
        return f"it could not be checked: {error}".removesuffix(".")
    if not issues:
        return None
    return listed((f"{issue.path}: {issue.message}" for issue in issues[:_MAX_LISTED]), len(issues))
