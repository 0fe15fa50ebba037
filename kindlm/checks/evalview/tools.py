"""EvalView's checks of tool calls: categories, sequences and forbidden tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from kindlm.checks.base import Check, Reads, Rule, failed, passed
from kindlm.checks.call_matching import (
    described,
    normalised,
    undecided_for_a_name,
    written_arguments,
)
from kindlm.dataclass import dataclass
from kindlm.outcome import CheckResult, Demands
from kindlm.ports import CheckContext
from kindlm.transcript import Transcript
from kindlm.wording import bounded, count, shown

CODES = {
    "TOOL_CATEGORY_MISSING": "No tool of a category was called.",
    "TOOL_SEQUENCE_WRONG": "The tools were not called in sequence. The score is the part that was.",
}

_MAX_LISTED = 5
_DECIMALS = 4


@dataclass(frozen=True, slots=True)
class ToolCategory(Check):
    """At least one of a category's `tools` was called.

    An undefined category has no tools, so its check always fails.
    """

    kind = "tool_category"
    about_tools = True
    reads = Reads.NUMBERS_AND_NAMES
    demands = Demands.TASK

    category: str
    tools: Sequence[str] = ()

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        tools = list(self.tools)
        called = list(dict.fromkeys(use.call.name for use in transcript.tool_uses))
        if not set(tools).isdisjoint(called):
            return passed()
        which = f" ({shown(tools)})" if tools else ", which has no tools"
        message = f"Expected a tool of the category {shown(self.category)}{which}; the agent called"
        message += f" {shown(called) if called else 'no tool'}."
        expected = {"category": self.category, "tools": tools}
        return failed("TOOL_CATEGORY_MISSING", message, expected=expected, actual=bounded(called))


@dataclass(frozen=True, slots=True)
class ForbiddenTool(Check):
    """There is no call to `tool`. Case, `_` and `-` in its name do not matter.

    A call without a name, or with a name that looks like the tool's, leaves the check undecided.
    """

    kind = "forbidden_tool"
    demands = Demands.SAFETY
    about_tools = True
    reads = Reads.NUMBERS_AND_NAMES
    sarif = Rule("forbidden-tool-called", "A forbidden tool was called")

    tool: str

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        wanted, uses = normalised(self.tool), transcript.tool_uses
        calls = [
            (index, use) for index, use in enumerate(uses) if normalised(use.call.name) == wanted
        ]
        if not calls:
            return undecided_for_a_name(self.tool, uses) or passed()
        index, use = calls[0]
        message = f"{shown(self.tool)} is forbidden; the agent made {count(len(calls), 'call')},"
        first = f"call {index}, {shown(use.call.name)} with {shown(written_arguments(use))}"
        message, expected = f"{message} first {first}.", {"forbidden": self.tool}
        actual = [described(index, use) for index, use in calls[:_MAX_LISTED]]
        return failed("TOOL_CALL_UNEXPECTED", message, expected=expected, actual=actual)


class SequenceMode(StrEnum):
    """How the calls must follow a sequence.

    - exact: these calls and no others, in this order.
    - subsequence: these calls in this order; other calls may come before, after and between.
    - unordered: these calls in any order; other calls are allowed.
    """

    EXACT = "exact"
    SUBSEQUENCE = "subsequence"
    UNORDERED = "unordered"


class SequenceProgress(NamedTuple):
    """How far calls follow a sequence.

    `share` is the part of the sequence that was called, from 0 to 1. `missing` is the first tool
    that was not called where the sequence demands it.
    """

    share: float
    holds: bool
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class ToolSequence(Check):
    """The tools were called in a sequence; the score is the share of it that was called."""

    kind = "tool_sequence"
    about_tools = True
    reads = Reads.NUMBERS_AND_NAMES
    demands = Demands.TASK

    sequence: Sequence[str]
    mode: SequenceMode = SequenceMode.SUBSEQUENCE

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        sequence, mode = list(self.sequence), self.mode
        called = [use.call.name for use in transcript.tool_uses]
        progress = sequence_progress(sequence, called, mode)
        if progress.holds:
            return passed()
        missing = progress.missing
        problem = f"{shown(missing)} is missing" if missing else "there are other calls"
        message = (
            f"The tools were not called in the sequence {shown(sequence)} ({mode}): {problem},"
        )
        message += f" progress {progress.share:g}; the agent called {shown(called)}."
        expected, actual = {"sequence": bounded(sequence), "mode": mode.value}, bounded(called)
        about: dict[str, Any] = {"expected": expected, "actual": actual, "score": progress.share}
        return failed("TOOL_SEQUENCE_WRONG", message, **about)


def sequence_progress(
    expected: Sequence[str], called: Sequence[str], mode: SequenceMode
) -> SequenceProgress:
    """Return how far the calls follow a sequence; all calls follow an empty one."""
    match mode:
        case SequenceMode.EXACT:
            here = [*called, *[None] * len(expected)]
            wrong = [tool for tool, made in zip(expected, here, strict=False) if tool != made]
            found, missing = len(expected) - len(wrong), wrong[0] if wrong else None
        case SequenceMode.SUBSEQUENCE:
            found = 0
            for tool in called:
                if found < len(expected) and tool == expected[found]:
                    found += 1
            missing = expected[found] if found < len(expected) else None
        case SequenceMode.UNORDERED:
            lacking = Counter(expected) - Counter(called)
            found = len(expected) - lacking.total()
            missing = next((tool for tool in expected if lacking[tool]), None)
    others = mode is SequenceMode.EXACT and bool(expected) and len(called) != len(expected)
    share = round(found / len(expected), _DECIMALS) if expected else 1.0
    return SequenceProgress(share, missing is None and not others, missing)
