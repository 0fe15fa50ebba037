"""The section `toolCalls` of `expect`, and the check `strictTools`: checks of single tool calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Self, TypeAlias

from pydantic import Field, PrivateAttr, model_validator
from pydantic.alias_generators import to_camel

from kindlm.checks.base import (
    Check,
    CheckSection,
    Key,
    Made,
    Place,
    Refers,
    Rule,
    failed,
    passed,
    undecided,
)
from kindlm.checks.call_matching import (
    ANY_NUMBER,
    CallCount,
    ExpectedCall,
    described,
    normalised,
    not_an_object,
    undecided_for_a_name,
    written_arguments,
)
from kindlm.dataclass import dataclass
from kindlm.json_schema import schema_issues
from kindlm.matching import Bounds
from kindlm.outcome import CheckResult, Demands
from kindlm.ports import CheckContext
from kindlm.section import Count, Extension, Maybe, Text, resolved
from kindlm.strict_json import parts_of
from kindlm.transcript import UNNAMED, ToolProblemKind, ToolUse, Transcript
from kindlm.values import refuse
from kindlm.wording import bounded, count, listed, listed_names, named, sentence, shown

CODES = {
    "TOOL_CALL_MISSING": "A required tool was not called.",
    "TOOL_CALL_UNEXPECTED": "A forbidden tool was called.",
    "TOOL_CALL_ARGS_MISMATCH": "A tool was called with other arguments. See the closest call.",
    "TOOL_CALL_ARGS_SCHEMA_INVALID": "Arguments do not match their schema.",
    "TOOL_CALL_ORDER_WRONG": "A tool was called in the wrong order.",
    "TOOL_CALL_COUNT_WRONG": "A tool was called too often or too rarely.",
    "TOOL_CALL_UNMATCHED": "No simulated answer fits a call. Only `strictTools` checks this.",
    "TOOL_RESPONSE_MISMATCH": "A tool returned an unexpected result.",
}

_MAX_LISTED = 5
_ONLY_OF_A_CALL = ("args_schema", "order", "response_contains", "before", "after", "count")
_MISMATCH = "TOOL_CALL_ARGS_MISMATCH"
_WRONG_TIME = "TOOL_CALL_ORDER_WRONG"


_Faults: TypeAlias = Mapping[int, Sequence[tuple[str, str]]]
"""Of calls to the expected tool, by their positions among all calls: the parts of the expectation
that each does not satisfy, as failure codes and messages."""


class ToolCall(ExpectedCall, CheckSection):
    """An expected or forbidden tool call. All keys must fit the same call."""

    key = Key(
        "toolCalls", "Expected and forbidden tool calls.", many=True, order=40, in_format=True
    )
    demands = Demands.SAFETY
    about_tools = True
    labelled_by = "tool"
    sarif = (Rule("tool_not_called", "forbidden-tool", "A forbidden tool was called"),)

    should_not_call: bool = Field(default=False, examples=[True])
    """The tool must not be called; with `argsMatch`, not with such arguments. The check is
    undecided if the arguments of a call are not a JSON object, or if the agent does not show that
    it reports its tool calls."""
    args_schema: Maybe[Text] = Field(default=None, examples=["schemas/lookup.json"])
    """JSON Schema file for the arguments, relative to this file."""
    order: Maybe[Count] = Field(default=None, examples=[0])
    """Position among all tool calls, from 0."""
    response_contains: Maybe[str] = Field(default=None, examples=["delivered"])
    """Text that must be in the tool result."""
    before: Extension[Maybe[Text]] = Field(default=None, examples=["issue_refund"])
    """Name of another tool, which must not be called before this one. It need not be called at
    all."""
    after: Extension[Maybe[Text]] = Field(default=None, examples=["log_in"])
    """Name of a tool that must be called before this one."""
    count: Extension[Maybe[CallCount]] = Field(default=None, examples=[{"min": 2, "max": 2}])
    """Number of calls that fit this entry. Other calls to the tool do not count. By default at
    least one. `order`, `before` and `after` must hold for one of the counted calls."""

    _document: Any = PrivateAttr(None)
    """The JSON Schema in the file `args_schema`, None if there is no such file."""

    @model_validator(mode="after")
    def _is_not_before_itself(self) -> Self:
        if self.before == self.tool:
            raise refuse(
                f"has {named(self.tool)} before itself",
                "Write `count: {max: 1}` for at most one call, or name another tool",
            )
        return self

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        return "tool_called", "tool_not_called"

    @property
    def kind(self) -> str:  # type: ignore[override]
        """Whether a call is demanded or forbidden."""
        return "tool_not_called" if self.should_not_call else "tool_called"

    @classmethod
    def references(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, Refers, Any]]:
        yield ("argsSchema",), "schema", written.get("argsSchema")

    def checks(self, schema: Callable[[str], Any]) -> Iterator[Made]:
        check = self
        if self.args_schema is not None and not self.should_not_call:
            check = self.with_schema(schema(self.args_schema))
        yield Made(check, self.tool)

    def with_schema(self, document: Any) -> ToolCall:
        """Return the check with the JSON Schema that arguments must fit."""
        copy = self.model_copy()
        copy._document = document  # noqa: SLF001 - of the same class
        return copy

    def never_fails(self, timeout_ms: float) -> Iterator[tuple[Place, str]]:
        at_any_time = (self.order, self.before, self.after) == (None, None, None)
        any_number = self.count is not None and self.count.bounds == ANY_NUMBER
        if any_number and at_any_time and not self.should_not_call:
            yield ("count",), "any number of calls will do"

    def unused(self) -> Iterator[tuple[Place, str, str]]:
        for name in _ONLY_OF_A_CALL if self.should_not_call else ():
            if getattr(self, name) is not None:
                message = f"`{to_camel(name)}` has no effect beside shouldNotCall"
                hint = "Use argsMatch to forbid certain calls, or remove shouldNotCall"
                yield (to_camel(name),), message, hint

    @property
    def reads_text(self) -> bool:  # type: ignore[override]
        of_a_call = None if self.should_not_call else self.response_contains
        return (self.arguments, self._document, of_a_call) != (None, None, None)

    def is_slow(self, transcript: Transcript) -> bool:
        return self._document is not None

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        """Return whether a call to the tool satisfies all parts together, or there is none.

        `before` holds if the other tool is never called, and `after` does not. `count` bounds the
        number of calls that fit at any time. At least one of them must be at the right time, unless
        `min: 0` allows no calls.

        A call without a name, or with a name that looks like a tool's, leaves the check undecided
        if it could break `before` or `count`, or be the only call, at a wrong time.
        """
        uses = transcript.tool_uses
        if self.should_not_call:
            return self._not_called(uses)
        names = [use.call.name for use in uses]
        faults = dict[int, Sequence[tuple[str, str]]]()
        # The calls that fit, perhaps at the wrong time, and the first that is at the right time.
        meant = list[int]()
        fitting: int | None = None
        for index, use in enumerate(uses):
            if use.call.name == self.tool:
                faults[index] = found = list(self._faults(index, use, names))
                if not found or all(code == _WRONG_TIME for code, _ in found):
                    meant.append(index)
                if not found and fitting is None:
                    fitting = index
        bounds = Bounds(1, None) if self.count is None else self.count.bounds
        if fitting is None and (meant or bounds.low):
            return self._lacking(faults, meant, uses)
        if not bounds.holds(len(meant)):
            low, high = bounds.low, bounds.high
            if high is None:
                often = f"at least {count(low, 'call')}"
            else:
                often = count(high, "call") if low == high else f"{low:,} to {count(high, 'call')}"
            message = f"Expected {often} to {named(self.tool)} as described, got {len(meant)}"
            if len(meant) < min(low, len(faults)):
                others = {at: found for at, found in faults.items() if at not in meant}
                nearest, _, why = _closest(others)
                message += f"; the closest other one is call {nearest}: {why}"
            code, actual = "TOOL_CALL_COUNT_WRONG", {"count": len(meant)}
            return failed(code, f"{message}.", expected=resolved(self), actual=actual)
        doubt = None
        room = None if bounds.high is None else bounds.high - len(meant)
        if fitting is None and (self.order, self.before, self.after) != (None, None, None):
            room = 0  # A call that may be to the tool may be at the wrong time.
        if room is not None:
            doubt = undecided_for_a_name(self.tool, uses, arguments=self.arguments, allowed=room)
        if doubt is None and fitting is not None and self.before is not None:
            doubt = undecided_for_a_name(self.before, uses[:fitting])
        return doubt or passed()

    def _lacking(
        self, faults: _Faults, meant: Collection[int], uses: Sequence[ToolUse]
    ) -> CheckResult:
        """Return the result if none of the calls to the tool satisfies all parts."""
        expected, tool = resolved(self), named(self.tool)
        if faults:
            nearest, code, message = _closest(faults)
            actual = described(nearest, uses[nearest])
            if nearest not in meant:
                message = f"No call to {tool} matches; call {nearest}: {message}"
            return failed(code, f"{message}.", expected=expected, actual=actual)
        made = list(dict.fromkeys(use.call.name for use in uses))
        if UNNAMED in made and (doubt := undecided_for_a_name(self.tool, uses)) is not None:
            return doubt
        called = f"only {listed_names(made)}" if made else "no tool"
        message = f"Expected a call to {tool}; the agent called {called}."
        alike = [name for name in made if normalised(name) == normalised(self.tool)]
        if alike:
            message += f" {named(alike[0])} is not {tool}: the names must be identical."
        return failed("TOOL_CALL_MISSING", message, expected=expected, actual=bounded(made))

    def _faults(self, index: int, use: ToolUse, names: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield the faults of a call; `names` are the tools of all calls."""
        for fault in self.argument_faults(use):
            yield _MISMATCH, fault
        if self._document is not None:
            code = "TOOL_CALL_ARGS_SCHEMA_INVALID"
            if use.call.malformed is not None:
                yield code, not_an_object(use)
            elif issues := schema_issues(self._document, use.call.arguments):
                places = listed(issues, _MAX_LISTED, lambda issue: f"{issue.path}: {issue.message}")
                name = self.args_schema or "the schema"
                yield code, f"its arguments do not fit {name}: {places}"
        tool, order, before, after = named(self.tool), self.order, self.before, self.after
        if order is not None and order != index:
            there = names[order] if order < len(names) else self.tool
            message = f"{tool} was call {index}, expected to be call {order}"
            if there != self.tool:
                message = f"{tool} was called before {named(there)}"
                if order < index:
                    message = f"{named(there)} was called before {tool}"
            yield _WRONG_TIME, message
        if before is not None and before in names[:index]:
            yield _WRONG_TIME, f"{named(before)} was called before {tool}"
        if after is not None and after not in names[:index]:
            message = f"{tool} was called without an earlier call to {named(after)}"
            if after in names:
                message = f"{tool} was called before {named(after)}"
            yield _WRONG_TIME, message
        needle = self.response_contains
        if needle is not None and not any(needle in text for text in _response_texts(use.response)):
            message = f"expected a tool result with {shown(needle)}, got {shown(use.response)}"
            yield "TOOL_RESPONSE_MISMATCH", message

    def _not_called(self, uses: Sequence[ToolUse]) -> CheckResult:
        """Return whether the tool was not called; with `args_match`, not with such arguments."""
        tool, wanted = self.tool, self.arguments
        calls = [(index, use) for index, use in enumerate(uses) if self.fits(use)]
        if calls:
            which = f" with arguments matching {shown(wanted)}" if wanted is not None else ""
            first = shown(written_arguments(calls[0][1]))
            message = f"Expected no call to {named(tool)}{which}; the agent made "
            message += f"{count(len(calls), 'call')}, first with {first}."
            actual = [described(index, use) for index, use in calls[:_MAX_LISTED]]
            return failed("TOOL_CALL_UNEXPECTED", message, expected=resolved(self), actual=actual)
        return undecided_for_a_name(tool, uses, arguments=wanted) or passed()


def _closest(faults: _Faults) -> tuple[int, str, str]:
    """Return the call with the fewest faults, the code of its first one, and all in words.

    Of two calls, one with the right arguments is closer.
    """
    at = min(faults, key=lambda each: (len(faults[each]), faults[each][0][0] == _MISMATCH))
    return at, faults[at][0][0], listed(faults[at], _MAX_LISTED, itemgetter(1))


@dataclass(frozen=True, slots=True)
class ToolStrict(Check):
    """Each call to a simulated tool matched one of its responses, and fitted its schema.

    If a simulated response breaks its own `resultSchema`, the model is not at fault, but its later
    behaviour is meaningless: without other problems, the check is undecided.
    """

    kind = "tool_strict"
    demands = Demands.SAFETY
    about_tools = True

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        found = [
            (f"Call {index}: {problem.message}", _PROBLEM_CODES.get(problem.kind))
            for index, use in enumerate(transcript.tool_uses)
            for problem in use.problems
        ]
        if not found:
            return passed()
        first = [sentence(problem) for problem, _ in found[:_MAX_LISTED]]
        message = f"{count(len(found), 'problem')} with simulated tools. {' '.join(first)}"
        code = next((code for _, code in found if code is not None), None)
        return failed(code, message, actual=first) if code else undecided(message, actual=first)


_PROBLEM_CODES = {
    ToolProblemKind.UNMATCHED: "TOOL_CALL_UNMATCHED",
    ToolProblemKind.ARGUMENTS: "TOOL_CALL_ARGS_SCHEMA_INVALID",
}


def _response_texts(response: Any) -> Iterator[str]:
    """Yield the texts of a tool result to search: each string in it, and its JSON."""
    if not isinstance(response, str):
        yield json.dumps(response, ensure_ascii=False, separators=(",", ":"))
        yield json.dumps(response, ensure_ascii=False)
    yield from (part for part in parts_of(response) if isinstance(part, str))
