"""Checks of the tool calls that the target made: which, with what, where in the order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kindlm.alignment import Bounds
from kindlm.checks.calls import (
    arguments_match,
    bounds_of,
    described,
    differences,
    doubtful_calls,
    how_often,
    spelling_hint,
    undecided_for_a_name,
    written_arguments,
)
from kindlm.checks.registry import Reads, check
from kindlm.checks.results import failed, passed, undecided
from kindlm.json_schema import UndecidableSchemaError, schema_issues
from kindlm.matching import mismatches
from kindlm.outcome import CheckResult, FailureCode, Outcome
from kindlm.suite import Expectation
from kindlm.transcript import ToolUse, Transcript
from kindlm.wording import bounded, count, shown

__all__ = ["tool_called", "tool_not_called"]

_MAX_LISTED = 5
_PARTS = (
    *("tool", "argsMatch", "argsSchemaFile", "responseContains"),
    *("order", "before", "after", "count"),
)


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
    def is_meant(self) -> bool:
        """Whether it is what is asked for, if perhaps at another time."""
        return all(lack.code is FailureCode.TOOL_CALL_ORDER_WRONG for lack in self.lacks)

    @property
    def distance(self) -> tuple[int, bool, int, int]:
        """How far it is from what was expected: first of all, how many parts fail.

        Among equals, one with the right arguments is closer: they say which call was meant.
        """
        other_call = self.lacks[0].code is FailureCode.TOOL_CALL_ARGS_MISMATCH
        return len(self.lacks), other_call, sum(lack.places for lack in self.lacks), self.index


def _has_schema(expectation: Expectation, _transcript: Transcript) -> bool:
    return expectation.params.get("argsSchema") is not None


def _reads(expectation: Expectation) -> Reads:
    """Return that the name alone decides where nothing is said of arguments and results."""
    asks = ("argsMatch", "argsSchema", "responseContains")
    if all(expectation.params.get(name) is None for name in asks):
        return Reads.NUMBERS_AND_NAMES
    return Reads.CALLS


@check("tool_called", slow=_has_schema, about_tools=True, reads=_reads)
def tool_called(expectation: Expectation, transcript: Transcript) -> CheckResult:
    """Some call of `tool` satisfies all other parts together.

    Params that say what is called: `tool`; `argsMatch`, matched partially; `argsSchema`, a JSON
    Schema, known by the name `argsSchemaFile`; `responseContains`, a substring of the tool's
    answer, its case included.

    Params that say when: `order`, the position among all calls from 0; `before`, a tool that had
    not been called yet; `after`, a tool that had been called already. So `before` holds where the
    other tool is never called, and `after` does not: looking up an order before a refund asks for
    no refund, which is an expectation of its own.

    `count`, with `min` and `max`, bounds the number of calls that are what is asked for, whenever
    they happen. Without `min` there is at least one, and one of them at the right time; with
    `min: 0` none at all is as good.

    A call without a name, or whose name only looks like that of a tool, may be one of the tool that
    was to come later (`before`), or one too many.
    """
    params, uses = expectation.params, transcript.tool_uses
    bounds = None if params.get("count") is None else bounds_of(params["count"])
    calls: list[_Candidate] = []
    try:
        for call in _candidates(params, uses):
            if bounds is None and not call.lacks:
                return _too_early(expectation, call, uses) or passed(expectation)
            calls.append(call)
    except UndecidableSchemaError as error:
        return undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, str(error))
    some_as_expected = not all(call.lacks for call in calls)
    none_is_fine = bounds and bounds.low == 0 and not any(call.is_meant for call in calls)
    if bounds is not None and (some_as_expected or none_is_fine):
        result = _counted(expectation, bounds, calls)
        unnamed = _may_be_more(expectation, bounds, calls, uses)
        return unnamed if unnamed and result.outcome is Outcome.PASSED else result
    tool = params["tool"]
    if calls:
        near = min(calls, key=lambda call: call.distance)
        reasons = "; ".join(lack.message for lack in near.lacks)
        return failed(
            expectation,
            near.lacks[0].code,
            f"No call of {shown(tool)} is as expected; call {near.index}: {reasons}.",
            expected=_given(params, *_PARTS),
            actual=described(near.index, near.use),
        )
    names = list(dict.fromkeys(use.call.name for use in uses))
    called = f"only {shown(names)} were called" if names else "no tool was called"
    return failed(
        expectation,
        FailureCode.TOOL_CALL_MISSING,
        f"Expected a call of {shown(tool)}, but {called}.{spelling_hint(tool, names)}",
        expected={"tool": tool},
        actual=bounded(names),
    )


@check("tool_not_called", about_tools=True, reads=_reads)
def tool_not_called(expectation: Expectation, transcript: Transcript) -> CheckResult:
    """No call of `tool`; with `argsMatch`, none whose arguments match it.

    Where arguments are no JSON object, nobody knows whether they are those that must not be; nor
    whether a call without a name, or whose name only looks like that of the tool, is one of it.
    """
    tool: str = expectation.params["tool"]
    wanted = expectation.params.get("argsMatch")
    calls = [
        (index, use)
        for index, use in enumerate(transcript.tool_uses)
        if use.call.name == tool and (wanted is None or arguments_match(wanted, use))
    ]
    if not calls:
        unread = _unread(expectation, transcript.tool_uses)
        unread = unread or undecided_for_a_name(
            expectation, tool, transcript.tool_uses, arguments=wanted
        )
        return unread or passed(expectation)
    index, use = calls[0]
    which = f" with arguments matching {shown(wanted)}" if wanted is not None else ""
    message = (
        f"Expected no call of {shown(tool)}{which}, got {count(len(calls), 'call')}; "
        f"the first is call {index} with arguments {shown(written_arguments(use))}."
    )
    expected = {"tool": tool, "shouldNotCall": True} | _given(expectation.params, "argsMatch")
    actual = [described(index, use) for index, use in calls[:_MAX_LISTED]]
    code = FailureCode.TOOL_CALL_UNEXPECTED
    return failed(expectation, code, message, expected=expected, actual=actual)


def _unread(expectation: Expectation, uses: Sequence[ToolUse]) -> CheckResult | None:
    """Return why nobody knows whether a call of the tool matches, None if there is no such call."""
    tool = expectation.params["tool"]
    for index, use in enumerate(uses):
        if use.call.name == tool and use.call.malformed is not None:
            message = (
                f"Nobody knows whether call {index} of {shown(tool)} matches: its arguments are "
                f"no JSON object: {shown(use.call.malformed)}."
            )
            code = FailureCode.ASSERTION_EVAL_ERROR
            return undecided(expectation, code, message, actual=described(index, use))
    return None


def _too_early(
    expectation: Expectation, call: _Candidate, uses: Sequence[ToolUse]
) -> CheckResult | None:
    """Return that an earlier call may be of the tool that was to come later, by its name."""
    later = expectation.params.get("before")
    if later is None:
        return None
    return undecided_for_a_name(expectation, later, uses[: call.index])


def _may_be_more(
    expectation: Expectation,
    bounds: Bounds,
    calls: Sequence[_Candidate],
    uses: Sequence[ToolUse],
) -> CheckResult | None:
    """Return that doubtful calls may be too many, or too early for the first as expected."""
    number = sum(call.is_meant for call in calls)
    number += len(doubtful_calls(expectation.params["tool"], uses))
    if bounds.high is not None and number > bounds.high:
        unnamed = undecided_for_a_name(expectation, expectation.params["tool"], uses)
        if unnamed is not None:
            return unnamed
    first = next((call for call in calls if not call.lacks), None)
    return None if first is None else _too_early(expectation, first, uses)


def _candidates(params: Mapping[str, Any], uses: Sequence[ToolUse]) -> Iterator[_Candidate]:
    """Yield all calls of the expected tool."""
    first: dict[str, int] = {}
    if params.get("before") is not None or params.get("after") is not None:
        for index, use in enumerate(uses):
            first.setdefault(use.call.name, index)
    for index, use in enumerate(uses):
        if use.call.name == params["tool"]:
            yield _Candidate(index, use, tuple(_shortcomings(params, index, use, first)))


def _shortcomings(
    params: Mapping[str, Any], index: int, use: ToolUse, first: Mapping[str, int]
) -> Iterator[_Shortcoming]:
    """Yield what a call lacks; the first one names the failure.

    `first` says where each tool was called first, if that matters.
    """
    wanted, document = params.get("argsMatch"), params.get("argsSchema")
    if wanted is not None and (lack := _wrong_arguments(wanted, use)):
        yield lack
    if document is not None and (lack := _invalid_arguments(params, document, use)):
        yield lack
    for message in _wrong_times(params, index, first):
        yield _Shortcoming(FailureCode.TOOL_CALL_ORDER_WRONG, message)
    needle = params.get("responseContains")
    if needle is not None and not any(needle in text for text in _response_texts(use.response)):
        message = f"expected a response with {shown(needle)}, got {shown(use.response)}"
        yield _Shortcoming(FailureCode.TOOL_RESPONSE_MISMATCH, message)


def _wrong_times(params: Mapping[str, Any], index: int, first: Mapping[str, int]) -> Iterator[str]:
    order, before, after = params.get("order"), params.get("before"), params.get("after")
    if order is not None and order != index:
        yield f"expected it as call {order}, it is call {index}"
    if before is not None and first.get(before, index + 1) <= index:
        yield f"expected it before {shown(before)}, which is call {first[before]}"
    if after is not None and after not in first:
        yield f"expected it after {shown(after)}, which was not called"
    elif after is not None and first[after] >= index:
        yield f"expected it after {shown(after)}, which is call {first[after]}"


def _wrong_arguments(wanted: Any, use: ToolUse) -> _Shortcoming | None:
    code = FailureCode.TOOL_CALL_ARGS_MISMATCH
    if use.call.malformed is not None:
        return _Shortcoming(code, f"its arguments are no JSON object: {shown(use.call.malformed)}")
    found = mismatches(wanted, use.call.arguments)
    return _Shortcoming(code, differences(found), len(found)) if found else None


def _invalid_arguments(params: Mapping[str, Any], schema: Any, use: ToolUse) -> _Shortcoming | None:
    code = FailureCode.TOOL_CALL_ARGS_SCHEMA_INVALID
    if use.call.malformed is not None:
        return _Shortcoming(code, f"its arguments are no JSON object: {shown(use.call.malformed)}")
    issues = schema_issues(schema, use.call.arguments)
    if not issues:
        return None
    name = params.get("argsSchemaFile") or "the schema"
    message = "; ".join(f"{issue.path}: {issue.message}" for issue in issues[:_MAX_LISTED])
    return _Shortcoming(code, f"its arguments do not fit {name}: {message}", len(issues))


def _counted(expectation: Expectation, bounds: Bounds, calls: Sequence[_Candidate]) -> CheckResult:
    """Return the result of counting the calls that are what is asked for."""
    others = [call for call in calls if not call.is_meant]
    number = len(calls) - len(others)
    if bounds.holds(number):
        return passed(expectation, actual={"count": number})
    tool = shown(expectation.params["tool"])
    message = f"Expected {how_often(bounds)} of {tool} that are as described, got {number}"
    if number < bounds.low and others:
        near = min(others, key=lambda call: call.distance)
        reasons = "; ".join(lack.message for lack in near.lacks)
        message += f"; the closest other one is call {near.index}: {reasons}"
    return failed(
        expectation,
        FailureCode.TOOL_CALL_COUNT_WRONG,
        f"{message}.",
        expected=_given(expectation.params, *_PARTS),
        actual={"count": number},
    )


def _given(params: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: params[name] for name in names if params.get(name) is not None}


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
