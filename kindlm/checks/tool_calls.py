"""Checks of the tool calls that the target made: which, with what, where in the order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed, undecided
from kindlm.json_schema import SchemaIssue, UndecidableSchemaError, schema_issues
from kindlm.matching import Mismatch, Reason, matches, mismatches
from kindlm.outcome import CheckResult, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import ToolUse, Transcript
from kindlm.wording import bounded, count, shown

__all__ = ["tool_called", "tool_not_called"]

_MAX_LISTED = 5


@dataclass(frozen=True, slots=True)
class _Shortcoming:
    """A part of the expectation that a call does not satisfy, in words, and by how much."""

    code: FailureCode
    message: str
    places: int = 1


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A call of the expected tool, and all it lacks; `index` is its position among all calls."""

    index: int
    use: ToolUse
    lacks: tuple[_Shortcoming, ...]

    @property
    def distance(self) -> tuple[int, bool, int, int]:
        """How far it is from what was expected: first of all, how many parts fail.

        Among equals, one with the right arguments is closer: they say which call was meant.
        """
        other_call = self.lacks[0].code is FailureCode.TOOL_CALL_ARGS_MISMATCH
        return len(self.lacks), other_call, sum(lack.places for lack in self.lacks), self.index


@check("tool_called")
def tool_called(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """Some call of `tool` satisfies all other parts together.

    Params: `tool`; `argsMatch`, matched partially; `argsSchema`, a JSON Schema, known by the name
    `argsSchemaFile`; `order`, the position among all calls from 0; `responseContains`, a substring
    of the tool's answer, its case included.
    """
    params, uses = expectation.params, transcript.tool_uses
    tool: str = params["tool"]
    candidates = []
    for index, use in enumerate(uses):
        if use.call.name != tool:
            continue
        try:
            lacks = tuple(_shortcomings(params, index, use))
        except UndecidableSchemaError as error:
            return [undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, str(error))]
        if not lacks:
            return [passed(expectation)]
        candidates.append(_Candidate(index, use, lacks))
    if candidates:
        return [_closest(expectation, min(candidates, key=lambda call: call.distance))]
    return [_missing(expectation, tool, uses)]


@check("tool_not_called")
def tool_not_called(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """No call of `tool`; with `argsMatch`, none whose arguments match it."""
    tool: str = expectation.params["tool"]
    wanted = expectation.params.get("argsMatch")
    calls = [
        (index, use)
        for index, use in enumerate(transcript.tool_uses)
        if use.call.name == tool and (wanted is None or _args_match(wanted, use))
    ]
    if not calls:
        return [passed(expectation)]
    index, use = calls[0]
    which = f" with arguments matching {shown(wanted)}" if wanted is not None else ""
    message = (
        f"Expected no call of {shown(tool)}{which}, got {count(len(calls), 'call')}; "
        f"the first is call {index} with arguments {shown(_arguments(use))}."
    )
    expected = {"tool": tool, "shouldNotCall": True} | _given(expectation.params, "argsMatch")
    actual = [_described(index, use) for index, use in calls[:_MAX_LISTED]]
    code = FailureCode.TOOL_CALL_UNEXPECTED
    return [failed(expectation, code, message, expected=expected, actual=actual)]


def _shortcomings(params: Mapping[str, Any], index: int, use: ToolUse) -> Iterator[_Shortcoming]:
    """Yield what a call lacks; the first one names the failure."""
    wanted, document = params.get("argsMatch"), params.get("argsSchema")
    if wanted is not None and (lack := _wrong_arguments(wanted, use)):
        yield lack
    if document is not None and (lack := _invalid_arguments(params, document, use)):
        yield lack
    order = params.get("order")
    if order is not None and order != index:
        message = f"expected it as call {order}, it is call {index}"
        yield _Shortcoming(FailureCode.TOOL_CALL_ORDER_WRONG, message)
    needle = params.get("responseContains")
    if needle is not None and not any(needle in text for text in _response_texts(use.response)):
        message = f"expected a response with {shown(needle)}, got {shown(use.response)}"
        yield _Shortcoming(FailureCode.TOOL_RESPONSE_MISMATCH, message)


def _wrong_arguments(wanted: Any, use: ToolUse) -> _Shortcoming | None:
    code = FailureCode.TOOL_CALL_ARGS_MISMATCH
    if use.call.malformed is not None:
        return _Shortcoming(code, f"its arguments are no JSON object: {shown(use.call.malformed)}")
    differences = mismatches(wanted, use.call.arguments)
    if not differences:
        return None
    message = "; ".join(_difference(difference) for difference in differences[:_MAX_LISTED])
    if len(differences) > _MAX_LISTED:
        message += f"; and {len(differences) - _MAX_LISTED} more"
    return _Shortcoming(code, message, len(differences))


def _invalid_arguments(params: Mapping[str, Any], schema: Any, use: ToolUse) -> _Shortcoming | None:
    code = FailureCode.TOOL_CALL_ARGS_SCHEMA_INVALID
    if use.call.malformed is not None:
        return _Shortcoming(code, f"its arguments are no JSON object: {shown(use.call.malformed)}")
    issues = schema_issues(schema, use.call.arguments)
    if not issues:
        return None
    name = params.get("argsSchemaFile") or "the schema"
    message = "; ".join(_issue(issue) for issue in issues[:_MAX_LISTED])
    return _Shortcoming(code, f"its arguments do not fit {name}: {message}", len(issues))


def _closest(expectation: Expectation, call: _Candidate) -> CheckResult:
    params = expectation.params
    reasons = "; ".join(lack.message for lack in call.lacks)
    message = f"No call of {shown(params['tool'])} is as expected; call {call.index}: {reasons}."
    expected = _given(params, "tool", "argsMatch", "argsSchemaFile", "order", "responseContains")
    return failed(
        expectation,
        call.lacks[0].code,
        message,
        expected=expected,
        actual=_described(call.index, call.use),
    )


def _missing(expectation: Expectation, tool: str, uses: tuple[ToolUse, ...]) -> CheckResult:
    names = list(dict.fromkeys(use.call.name for use in uses))
    called = f"only {shown(names)} were called" if names else "no tool was called"
    return failed(
        expectation,
        FailureCode.TOOL_CALL_MISSING,
        f"Expected a call of {shown(tool)}, but {called}.",
        expected={"tool": tool},
        actual=bounded(names),
    )


def _args_match(wanted: Any, use: ToolUse) -> bool:
    return use.call.malformed is None and matches(wanted, use.call.arguments)


def _arguments(use: ToolUse) -> Any:
    return use.call.arguments if use.call.malformed is None else use.call.malformed


def _described(index: int, use: ToolUse) -> dict[str, Any]:
    return {
        "index": index,
        "tool": use.call.name,
        "arguments": bounded(_arguments(use)),
        "response": bounded(use.response),
    }


def _given(params: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: params[name] for name in names if params.get(name) is not None}


def _difference(difference: Mismatch) -> str:
    path = shown(difference.path) if not difference.path.isprintable() else difference.path
    expected = f"{path or 'arguments'}: expected {shown(difference.expected)}"
    if difference.reason is Reason.MISSING:
        return f"{expected}, it is missing"
    return f"{expected}, got {shown(difference.actual)}"


def _issue(issue: SchemaIssue) -> str:
    return f"{issue.path}: {issue.message}"


def _response_texts(response: Any) -> Iterator[str]:
    """Yield the texts that a response can be searched in: each string of it, and its JSON."""
    if not isinstance(response, str):
        yield json.dumps(response, ensure_ascii=False, separators=(",", ":"))
        yield json.dumps(response, ensure_ascii=False)
    pending = [response]
    while pending:
        match pending.pop():
            case str() as text:
                yield text
            case list() as items:
                pending.extend(items)
            case Mapping() as object_:
                pending.extend(object_.values())
            case _:
                pass
