"""Shared by checks of tool calls: expected calls, their display, and doubtful names.

A demanded tool must be called by its exact name. The check of a forbidden tool is undecided if a
call has no name, or a name that looks like the tool's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Self

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from kindlm.checks.base import ExpectSection, undecided
from kindlm.errors import DOCS
from kindlm.matching import ABSENT, Bounds, Mismatch, matches, mismatches
from kindlm.normal_form import plain_name
from kindlm.outcome import CheckResult
from kindlm.section import Count, Extension, Maybe, Text
from kindlm.transcript import UNNAMED, UNREAD_LINES, ToolUse, Transcript
from kindlm.values import refuse
from kindlm.wording import bounded, count, excerpt, listed, named, shown

_MAX_LISTED = 5

_LINE_OF_A_CALL = '`{"kindlm": "tool_call", "name": "NAME", "arguments": {}}`'
"""The line that a program under test (`command`) prints for a call."""

_LISTED = (
    "List them in its answer under `tool_calls` ([] for none), or let kindlm observe the agent, "
    "with `gateway: true` or `telemetry: otlp`"
)
_PRINTED = (
    f"Print a line for each, {_LINE_OF_A_CALL}, and one for its answer, "
    '`{"kindlm": "output_json", "value": ANSWER}`'
)


def why_unknown(transcript: Transcript) -> str | None:
    """Return why the tool calls are unknown, with the remedy; None if they are known."""
    if transcript.unseen is not None or transcript.shows_tools:
        return transcript.unseen
    way = _PRINTED if transcript.prints_calls else _LISTED
    return (
        "Nothing shows that the agent reports its tool calls: it may have made some that kindlm "
        f"cannot see. {way}; or add `reportsTools: true` (`reports_tools` in scenarios and TOML) "
        f"if it reports every call ({DOCS}/how-to/see-your-agent/)."
    )


class ExpectedCall(ExpectSection):
    """A call that is expected or forbidden: its tool and its arguments."""

    main = "tool"

    tool: Text = Field(examples=["lookup_order"])
    """Name of the tool."""
    args_match: Maybe[dict[str, Any]] = Field(default=None, examples=[{"order_id": "A1"}])
    """Required arguments. Additional ones are allowed, at every level."""
    args_exact: Extension[Maybe[bool]] = Field(default=None, examples=[True])
    """The arguments are exactly those of `argsMatch`, at every level, or none without it."""

    @property
    def arguments(self) -> dict[str, Any] | None:
        """The arguments that a call must have, None for any."""
        return {} if self.args_exact and self.args_match is None else self.args_match

    def argument_faults(self, use: ToolUse) -> tuple[int, str]:
        """Return the number of differences from the expected arguments, and a description."""
        if (wanted := self.arguments) is None:
            return 0, ""
        if use.call.malformed is not None:
            return 1, not_an_object(use)
        found = mismatches(wanted, use.call.arguments, exact=bool(self.args_exact))
        return len(found), listed(found, _MAX_LISTED, _difference)

    def fits(self, use: ToolUse) -> bool:
        """Return whether a call is to the tool, with its arguments."""
        wanted, exact = self.arguments, bool(self.args_exact)
        return use.call.name == self.tool and (
            wanted is None or arguments_match(wanted, use, exact=exact)
        )


def arguments_match(wanted: Any, use: ToolUse, *, exact: bool = False) -> bool:
    """Return whether a call has the wanted arguments; malformed ones match nothing."""
    return use.call.malformed is None and matches(wanted, use.call.arguments, exact=exact)


def not_an_object(use: ToolUse) -> str:
    """Return a description of malformed arguments."""
    return f"its arguments are not a JSON object: {shown(use.call.malformed)}"


def written_arguments(use: ToolUse) -> Any:
    """Return the arguments of a call, or the text that should have been arguments."""
    return use.call.arguments if use.call.malformed is None else use.call.malformed


def described(index: int, use: ToolUse) -> dict[str, Any]:
    """Return a call as results show it; `index` is its position among all calls."""
    return {
        "index": index,
        "tool": use.call.name,
        "arguments": bounded(written_arguments(use)),
        "response": bounded(use.response),
    }


def _difference(mismatch: Mismatch) -> str:
    path, wanted, got = mismatch
    path = (path if path.isprintable() else shown(path)) or "arguments"
    expected = "not expected" if wanted is ABSENT else f"expected {shown(wanted)}"
    return f"{path}: {expected}, {'it is missing' if got is ABSENT else f'got {shown(got)}'}"


class CallCount(ExpectSection):
    """Number of expected calls: at least `min`, at most `max`."""

    min: Maybe[Count] = Field(default=None, examples=[1])
    """Minimum number of calls. By default 1, or 0 with `max: 0` and in a `subset`."""
    max: Maybe[Count] = Field(default=None, examples=[2])
    """Maximum number of calls. By default unlimited."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.min is None and self.max is None:
            raise refuse("holds neither `min` nor `max`", "Add one of them")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise refuse(f"can never hold: min {self.min} is more than max {self.max}")
        return self

    @property
    def bounds(self) -> Bounds:
        """The bounds; without `min`, at least one call unless `max` is 0."""
        usual = 0 if self.max == 0 else 1
        return Bounds(usual if self.min is None else self.min, self.max)

    @property
    def is_any_number(self) -> bool:
        """Whether any number of calls will do."""
        return self.min == 0 and self.max is None


def how_often(bounds: Bounds) -> str:
    """Return bounds in words."""
    low, high = bounds.low, bounds.high
    if high == 0:
        return "no calls"
    if high is None or low == high:
        return f"{'at least' if high is None else 'exactly'} {count(low, 'call')}"
    return f"{f'{low} to' if low else 'at most'} {count(high, 'call')}"


def written(value: Any) -> Any:
    """Return a part of a section as users write it, without empty keys."""
    if not isinstance(value, ExpectSection):
        return value
    items = ((to_camel(name), written(part)) for name, part in value)
    return {key: part for key, part in items if part is not None}


def normalised(name: str) -> str:
    """Return the name of a tool in lower case, without `_` and `-`."""
    return name.lower().replace("_", "").replace("-", "")


def spelling_hint(name: str, called: Iterable[str]) -> str:
    """Return a sentence about a called tool with another spelling, or an empty text."""
    wanted = normalised(name)
    other = next((tool for tool in called if tool != name and normalised(tool) == wanted), None)
    if other is None:
        return ""
    return f" {named(other)} is not {named(name)}: the names must be identical."


def _readings(name: str) -> tuple[str, str]:
    """Return a name with and without the prefix of a server or a namespace.

    Some agents report `functions.refund`, `mcp__shop__refund` or `shop/refund` for `refund`.
    """
    plain = plain_name(name)
    return plain, re.split(r"__|[./:]", plain)[-1]


def undecided_for_a_name(
    tool: str, uses: Sequence[ToolUse], *, arguments: Any = None, allowed: int = 0
) -> CheckResult | None:
    """Return an undecided result if too many calls may be to a tool although their names differ.

    Up to `allowed` such calls are fine. Named calls count only if they have the `arguments`; None
    allows any.
    """
    wanted = normalised(plain_name(tool))
    doubtful = [
        (index, use.call)
        for index, use in enumerate(uses)
        if use.call.name == UNNAMED
        or (
            use.call.name != tool
            and wanted in {normalised(name) for name in _readings(use.call.name)}
            and (
                arguments is None
                or use.call.malformed is not None
                or arguments_match(arguments, use)
            )
        )
    ]
    unread = [each for each in doubtful if each[1].id == UNREAD_LINES]  # any number of calls
    if len(doubtful) <= allowed and not unread:
        return None
    index, call = (unread or doubtful)[0]
    if call.name != UNNAMED:
        # Quotes and escapes show the difference.
        made, wanted = json.dumps(excerpt(call.name)), json.dumps(excerpt(tool))
        message = (
            f"Call {index} is named {made}, which differs from {wanted} only in a prefix, case, "
            "`_`, `-`, spaces around it, or characters that Unicode treats as the same or that "
            "are invisible. If they are one tool, let the agent report the name as the test has "
            "it; if not, rename one of them."
        )
    elif call.id == UNREAD_LINES:
        message = (
            f"A printed line is nearly a tool call, so it may be a call to {shown(tool)}. "
            "The warning of this execution says which line it is. Print a call as "
            f"one line, with nothing before or after it: {_LINE_OF_A_CALL}."
        )
    else:
        message = (
            f"Call {index} has no name, so it may be a call to {shown(tool)}. "
            "The agent has to name the tools it calls. If that is no call, list it elsewhere; or "
            "say where the calls are with `toolCallsPath`, which agents of the adapters http, "
            "subprocess and python can have."
        )
    return undecided(message)
