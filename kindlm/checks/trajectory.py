"""The check of a trajectory: which tools were called, as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kindlm.alignment import Assignment, Bounds, in_any_order, in_sequence
from kindlm.checks.call_counts import CallCount
from kindlm.checks.call_wording import arguments_match, written_arguments
from kindlm.checks.doubtful_calls import undecided_for_a_name
from kindlm.checks.registry import Reads, check
from kindlm.checks.results import failed, passed
from kindlm.checks.trajectory_diff import Difference, Entry, Trajectory, found_differences
from kindlm.outcome import CheckResult, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import ToolUse, Transcript
from kindlm.wording import bounded, listed

__all__ = ["trajectory"]

_MAX_LISTED = 6
_MAX_ACTUAL = 30


class _Mode(StrEnum):
    """How the calls that were made and the list of expected ones have to agree."""

    STRICT = "strict"
    IN_ORDER = "in-order"
    UNORDERED = "unordered"
    SUBSET = "subset"
    SUPERSET = "superset"


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a mode asks for. `usual` is how often an entry without a count is called."""

    usual: Bounds
    in_sequence: bool
    others_allowed: bool


_RULES = {
    _Mode.STRICT: _Rule(Bounds(1, 1), in_sequence=True, others_allowed=False),
    _Mode.IN_ORDER: _Rule(Bounds(1, None), in_sequence=True, others_allowed=True),
    _Mode.UNORDERED: _Rule(Bounds(1, 1), in_sequence=False, others_allowed=False),
    _Mode.SUBSET: _Rule(Bounds(0, None), in_sequence=False, others_allowed=False),
    _Mode.SUPERSET: _Rule(Bounds(1, None), in_sequence=False, others_allowed=True),
}


@check("trajectory", about_tools=True, reads=Reads.CALLS)
def trajectory(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """The calls of all tools agree with a list of expected ones.

    Params: `mode`; `calls`, each with `tool`, `argsMatch` (matched partially) and `count`, which
    has `min` and `max`. Every call counts for one entry only. An entry without `count` is expected
    once, where the mode says nothing else:

    - strict: the calls are these, in this order. A count stands for that many calls in a row.
    - in-order: among the calls are these, in this order; others may come before, after and between.
    - unordered: the calls are these, in any order.
    - subset: every call is one of these, any number of times; not all of them need to be made.
    - superset: among the calls are these, in any order; others may be made.

    With a count, `min` is 1 if it is not written (0 in a subset), and there is no `max` if none is
    written. Where others may be made, `max` bounds all calls that are what the entry asks for:
    otherwise one more would just be another call. There, a call without a name, or
    whose name only looks like that of the entry, leaves it undecided.
    """
    mode = _Mode(expectation.params["mode"])
    rule, uses = _RULES[mode], transcript.tool_uses
    entries = [
        Entry(item["tool"], item.get("argsMatch"), _bounds(mode, item.get("count")))
        for item in expectation.params["calls"]
    ]
    fits = [[_fits(entry, use) for use in uses] for entry in entries]
    found = Trajectory(
        entries, uses, fits, _assigned(rule, entries, fits, len(uses)), rule.others_allowed
    )
    differences = found_differences(found)
    if differences:
        return [_mismatch(expectation, uses, differences)]
    limited = [entry for entry in entries if entry.bounds.high is not None]
    doubts = (
        undecided_for_a_name(expectation, entry.tool, uses, arguments=entry.arguments)
        for entry in limited
        if rule.others_allowed
    )
    return [next(filter(None, doubts), None) or passed(expectation)]


def _mismatch(
    expectation: Expectation, uses: Sequence[ToolUse], differences: Sequence[Difference]
) -> CheckResult:
    mode, calls = expectation.params["mode"], expectation.params["calls"]
    first = listed((item.message for item in differences[:_MAX_LISTED]), len(differences))
    return failed(
        expectation,
        FailureCode.TRAJECTORY_MISMATCH,
        f"The calls are not as expected ({mode}): {first}.",
        expected={"mode": mode, "calls": bounded(calls)},
        actual={
            "calls": [_shown(index, use) for index, use in enumerate(uses[:_MAX_ACTUAL])],
            "differences": [
                {"kind": item.kind, "entry": item.entry, "call": item.call}
                for item in differences[:_MAX_ACTUAL]
            ],
        },
    )


def _bounds(mode: _Mode, count: Mapping[str, Any] | None) -> Bounds:
    if count is None:
        return _RULES[mode].usual
    if mode is _Mode.SUBSET:
        count = {"min": 0} | {name: value for name, value in count.items() if value is not None}
    read = CallCount.read(count)
    return Bounds(read.low, read.high)


def _assigned(
    rule: _Rule, entries: Sequence[Entry], fits: Sequence[Sequence[bool]], calls: int
) -> Assignment:
    bounds = [entry.bounds for entry in entries]
    if rule.in_sequence:
        return in_sequence(fits, bounds, calls, others_allowed=rule.others_allowed)
    if rule.others_allowed:
        bounds = [Bounds(item.low, item.low) for item in bounds]
    return in_any_order(fits, bounds, calls)


def _fits(entry: Entry, use: ToolUse) -> bool:
    return use.call.name == entry.tool and (
        entry.arguments is None or arguments_match(entry.arguments, use)
    )


def _shown(index: int, use: ToolUse) -> dict[str, Any]:
    arguments = bounded(written_arguments(use))
    return {"index": index, "tool": bounded(use.call.name), "arguments": arguments}
