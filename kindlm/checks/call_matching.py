"""Shared by checks of tool calls: expected calls, their display, and doubtful names.

A demanded tool must be called by its exact name. The check of a forbidden tool is undecided if a
call has no name, or a name that looks like the tool's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import starmap
from typing import Any, Self

from pydantic import Field, model_validator

from kindlm.checks.base import ExpectSection, undecided
from kindlm.errors import DOCS
from kindlm.matching import ABSENT, Bounds, matches, mismatches
from kindlm.normal_form import plain_name
from kindlm.outcome import CheckResult
from kindlm.section import Count, Extension, Maybe, Text
from kindlm.transcript import UNNAMED, UNREAD_LINES, ToolUse, Transcript
from kindlm.values import refuse
from kindlm.wording import bounded, excerpt, named, shown

_LINE_OF_A_CALL = '`{"kindlm": "tool_call", "name": "NAME", "arguments": {}}`'
"""The line that a program under test (`command`) prints for a call."""

_PARTS = re.compile(r"__|[./:]")


def why_unknown(transcript: Transcript) -> str | None:
    """Return why the tool calls are unknown, with the remedy; None if they are known."""
    if transcript.unseen is not None or transcript.shows_tools:
        return transcript.unseen
    return (
        "Nothing shows that the agent reports its tool calls: it may have made some that kindlm "
        "cannot see. List them in its answer under `tool_calls` ([] for none), let kindlm observe "
        f"the agent (`gateway: true` or `telemetry: otlp`), let a program print {_LINE_OF_A_CALL} "
        "for each, or add `reportsTools: true` (`reports_tools` in scenarios, TOML and EvalView) "
        f"if it reports every call: {DOCS}/how-to/see-your-agent/"
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

    def argument_faults(self, use: ToolUse) -> list[str]:
        """Return the differences of a call's arguments from the expected ones."""
        if (wanted := self.arguments) is None:
            return []
        if use.call.malformed is not None:
            return [not_an_object(use)]
        found = mismatches(wanted, use.call.arguments, exact=bool(self.args_exact))
        return list(starmap(_difference, found))

    def fits(self, use: ToolUse) -> bool:
        """Return whether a call is to the tool, with its arguments."""
        return use.call.name == self.tool and not self.argument_faults(use)


def not_an_object(use: ToolUse) -> str:
    """Return a description of malformed arguments."""
    return f"its arguments are not a JSON object: {shown(use.call.malformed)}"


def written_arguments(use: ToolUse) -> Any:
    """Return the arguments of a call, or the text that should have been arguments."""
    return use.call.arguments if use.call.malformed is None else use.call.malformed


def described(index: int, use: ToolUse) -> dict[str, Any]:
    """Return a call as results show it; `index` is its position among all calls."""
    arguments = bounded(written_arguments(use))
    return {"index": index, "tool": bounded(use.call.name), "arguments": arguments}


def _difference(path: str, wanted: Any, got: Any) -> str:
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
        if self.min is not None and self.max is not None and self.min > self.max:
            raise refuse(f"can never hold: min {self.min} is more than max {self.max}")
        return self

    @property
    def bounds(self) -> Bounds:
        """The bounds; without `min`, at least one call unless `max` is 0."""
        usual = 0 if self.max == 0 else 1
        return Bounds(usual if self.min is None else self.min, self.max)


ANY_NUMBER = Bounds(0, None)


def normalised(name: str) -> str:
    """Return the name of a tool in lower case, without `_` and `-`."""
    return name.lower().replace("_", "").replace("-", "")


def _are_alike(tool: str, other: str) -> bool:
    """Return whether two names may be of one tool.

    Some agents report `functions.refund`, `mcp__shop__refund` or `shop/refund` for `refund`.
    """
    names = plain_name(tool), plain_name(other)
    if normalised(names[0]) == normalised(names[1]):
        return True
    short, long = sorted(([normalised(part) for part in _PARTS.split(it)] for it in names), key=len)
    return long[-len(short) :] == short


def undecided_for_a_name(
    tool: str, uses: Sequence[ToolUse], *, arguments: Any = None, allowed: int = 0
) -> CheckResult | None:
    """Return an undecided result if too many calls may be to a tool, with the arguments.

    Their names differ from the tool's, or their arguments are not a JSON object. Up to `allowed`
    such calls are fine. Other named calls count only if they have the `arguments`; None allows any.
    """
    doubtful = list[int]()
    for index, use in enumerate(uses):
        malformed = use.call.malformed is not None
        fits = arguments is None or malformed or matches(arguments, use.call.arguments)
        # A call by the exact name is known unless its arguments cannot be compared.
        is_known = use.call.name == tool and (arguments is None or not malformed)
        is_alike = fits and not is_known and _are_alike(tool, use.call.name)
        if use.call.name == UNNAMED or is_alike:
            doubtful.append(index)
    unread = [at for at in doubtful if uses[at].call.id == UNREAD_LINES]  # any number of calls
    if len(doubtful) <= allowed and not unread:
        return None
    index = (unread or doubtful)[0]
    call = uses[index].call
    if call.name == tool:
        message = f"Call {index}, to {named(tool)}, may match: {not_an_object(uses[index])}."
    elif call.name != UNNAMED:
        # Quotes and escapes show the difference.
        made, other = json.dumps(excerpt(call.name)), json.dumps(excerpt(tool))
        message = (
            f"Call {index} is named {made}, which differs from {other} only in a prefix, case, "
            "`_`, `-`, or characters that look the same or are invisible. If they are one tool, "
            "let the agent report the name as the test has it; if not, rename one of them."
        )
    else:
        message = (
            f"Call {index} has no name, so it may be a call to {shown(tool)}. The agent has to "
            f"name its tool calls, and a program to print each as {_LINE_OF_A_CALL}, with nothing "
            "before or after it. If it is no tool call, list it elsewhere, or set `toolCallsPath` "
            "in kindlm.yaml (`tool_calls_path` in kindlm.toml)."
        )
    return undecided(message)
