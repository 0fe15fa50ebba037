"""The check of a trajectory: which tools were called, as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kindlm.alignment import Assignment, Bounds, Fits, in_any_order, in_sequence
from kindlm.checks.base import Check, Reads, failed, passed
from kindlm.checks.calls import (
    CallCount,
    arguments_match,
    differences,
    undecided_for_a_name,
    written,
    written_arguments,
)
from kindlm.matching import mismatches
from kindlm.outcome import CheckResult, FailureCode
from kindlm.ports import CheckContext
from kindlm.transcript import ToolUse, Transcript
from kindlm.wording import bounded, count, listed, shown

__all__ = ["Trajectory", "TrajectoryCall", "TrajectoryMode"]

_MAX_LISTED = 6
_MAX_ACTUAL = 30
_UNCOMPARABLE = 1_000
"""Arguments that are no JSON are further away than any that are."""


class TrajectoryMode(StrEnum):
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
    TrajectoryMode.STRICT: _Rule(Bounds(1, 1), in_sequence=True, others_allowed=False),
    TrajectoryMode.IN_ORDER: _Rule(Bounds(1, None), in_sequence=True, others_allowed=True),
    TrajectoryMode.UNORDERED: _Rule(Bounds(1, 1), in_sequence=False, others_allowed=False),
    TrajectoryMode.SUBSET: _Rule(Bounds(0, None), in_sequence=False, others_allowed=False),
    TrajectoryMode.SUPERSET: _Rule(Bounds(1, None), in_sequence=False, others_allowed=True),
}


@dataclass(frozen=True, slots=True)
class TrajectoryCall:
    """An expected call; `args_match` is matched partially, None matches all."""

    tool: str
    args_match: Any = None
    count: CallCount | None = None

    def fits(self, use: ToolUse) -> bool:
        """Return whether a call is what the entry asks for."""
        return use.call.name == self.tool and (
            self.args_match is None or arguments_match(self.args_match, use)
        )

    def bounds(self, mode: TrajectoryMode) -> Bounds:
        """Return how often it is called; in a subset, it need not be."""
        if self.count is None:
            return _RULES[mode].usual
        if mode is TrajectoryMode.SUBSET and self.count.min is None:
            return Bounds(0, self.count.max)
        return self.count.bounds


@dataclass(frozen=True, slots=True)
class Trajectory(Check):
    """The calls of all tools agree with a list of expected ones.

    Every call counts for one entry only. An entry without `count` is expected once, where the mode
    says nothing else:

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

    kind = "trajectory"
    about_tools = True
    reads = Reads.CALLS

    mode: TrajectoryMode
    calls: Sequence[TrajectoryCall]

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        uses, entries, rule = transcript.tool_uses, self.calls, _RULES[self.mode]
        fits = [[entry.fits(use) for use in uses] for entry in entries]
        bounds = [entry.bounds(self.mode) for entry in entries]
        if rule.in_sequence:
            others_allowed = rule.others_allowed
            owners = in_sequence(fits, bounds, len(uses), others_allowed=others_allowed)
        else:
            places = bounds
            if rule.others_allowed:
                places = [Bounds(item.low, item.low) for item in bounds]
            owners = in_any_order(fits, places, len(uses))
        found = _Trajectory(entries, bounds, uses, fits, owners, rule.others_allowed)
        wrong = _differences(found)
        if not wrong:
            doubts = (
                undecided_for_a_name(entry.tool, uses, arguments=entry.args_match)
                for entry, often in zip(entries, bounds, strict=True)
                if rule.others_allowed and often.high is not None
            )
            return next(filter(None, doubts), None) or passed()
        first = listed((item.message for item in wrong[:_MAX_LISTED]), len(wrong))
        return failed(
            FailureCode.TRAJECTORY_MISMATCH,
            f"The calls are not as expected ({self.mode}): {first}.",
            expected={
                "mode": self.mode.value,
                "calls": bounded([written(call) for call in self.calls]),
            },
            actual={
                "calls": [
                    {
                        "index": index,
                        "tool": bounded(use.call.name),
                        "arguments": bounded(written_arguments(use)),
                    }
                    for index, use in enumerate(uses[:_MAX_ACTUAL])
                ],
                "differences": [
                    {"kind": item.kind, "entry": item.entry, "call": item.call}
                    for item in wrong[:_MAX_ACTUAL]
                ],
            },
        )


@dataclass(frozen=True, slots=True)
class _Trajectory:
    """The expected calls, those that were made, and which of them was taken for which."""

    entries: Sequence[TrajectoryCall]
    bounds: Sequence[Bounds]
    uses: Sequence[ToolUse]
    fits: Fits
    owners: Assignment
    others_allowed: bool


@dataclass(frozen=True, slots=True)
class _Difference:
    """One difference: an entry, a call, or both of them, and what is wrong in words."""

    kind: str
    message: str
    entry: int | None = None
    call: int | None = None


def _differences(found: _Trajectory) -> list[_Difference]:
    """Return all differences, those of calls in their order, then what is missing.

    A call that is missing and one that is too many are told as one difference where they belong
    together: a call that was made at the wrong time, or with other arguments.
    """
    missing = [
        entry
        for entry, often in enumerate(found.bounds)
        for _ in range(often.low - found.owners.count(entry))
    ]
    spare = [call for call, owner in enumerate(found.owners) if owner is None]
    paired = [*_reordered(found, missing, spare), *_other_arguments(found, missing, spare)]
    if not found.others_allowed:
        paired.extend(_unexpected(found, call) for call in spare)
    paired.sort(key=lambda difference: difference.call or 0)
    return [*paired, *_absent(found, missing), *_too_many(found)]


def _reordered(found: _Trajectory, missing: list[int], spare: list[int]) -> Iterator[_Difference]:
    """Yield calls that were made at another time, and take them from both lists."""
    for entry in list(missing):
        call = next((call for call in spare if found.fits[entry][call]), None)
        if call is not None:
            missing.remove(entry)
            spare.remove(call)
            message = f"{_call(found, call)} comes {_direction(found, entry, call)}"
            yield _Difference("order", message, entry, call)


def _direction(found: _Trajectory, entry: int, call: int) -> str:
    placed = [(other, owner) for other, owner in enumerate(found.owners) if owner is not None]
    followers = [other for other, owner in placed if owner > entry and other < call]
    if followers:
        return f"too late, expected before call {followers[0]}"
    leaders = [other for other, owner in placed if owner < entry and other > call]
    if leaders:
        return f"too early, expected after call {leaders[-1]}"
    return "at another place than expected"


def _other_arguments(
    found: _Trajectory, missing: list[int], spare: list[int]
) -> Iterator[_Difference]:
    """Yield calls that were made with other arguments, and take them from both lists."""
    near = sorted(
        (_distance(found, entry, call), entry, call)
        for entry in dict.fromkeys(missing)
        for call in spare
        if found.uses[call].call.name == found.entries[entry].tool
    )
    for _, entry, call in near:
        if entry in missing and call in spare:
            missing.remove(entry)
            spare.remove(call)
            message = f"{_call(found, call)} is not as expected: {_reasons(found, entry, call)}"
            yield _Difference("arguments", message, entry, call)


def _unexpected(found: _Trajectory, call: int) -> _Difference:
    use = found.uses[call]
    near = [
        (_distance(found, entry, call), entry)
        for entry, item in enumerate(found.entries)
        if item.tool == use.call.name
    ]
    if not near:
        message = f"{_call(found, call)} is not expected"
        return _Difference("unexpected", message, None, call)
    distance, entry = min(near)
    if distance == 0:
        message = f"{_call(found, call)} is one too many"
    else:
        message = f"{_call(found, call)} is not expected: {_reasons(found, entry, call)}"
    return _Difference("unexpected", message, entry, call)


def _absent(found: _Trajectory, missing: Sequence[int]) -> Iterator[_Difference]:
    for entry in dict.fromkeys(missing):
        item, low, lacking = found.entries[entry], found.bounds[entry].low, missing.count(entry)
        which = f" with {shown(item.args_match)}" if item.args_match is not None else ""
        often = f", {lacking} of {low} times" if low > 1 else ""
        yield _Difference("missing", f"{shown(item.tool)}{which} was not called{often}", entry)


def _too_many(found: _Trajectory) -> Iterator[_Difference]:
    """Yield entries with more calls than they may have, where others are allowed."""
    if not found.others_allowed:
        return
    for entry, item in enumerate(found.entries):
        most, made = found.bounds[entry].high, sum(found.fits[entry])
        if most is not None and made > most:
            message = f"{shown(item.tool)}: expected at most {count(most, 'call')}, got {made}"
            yield _Difference("count", message, entry)


def _distance(found: _Trajectory, entry: int, call: int) -> int:
    wanted, use = found.entries[entry].args_match, found.uses[call]
    if wanted is None:
        return 0
    if use.call.malformed is not None:
        return _UNCOMPARABLE
    return len(mismatches(wanted, use.call.arguments))


def _reasons(found: _Trajectory, entry: int, call: int) -> str:
    use = found.uses[call]
    if use.call.malformed is not None:
        return f"its arguments are no JSON object: {shown(use.call.malformed)}"
    return differences(mismatches(found.entries[entry].args_match, use.call.arguments))


def _call(found: _Trajectory, call: int) -> str:
    use = found.uses[call]
    return f"call {call}, {shown(use.call.name)} with {shown(written_arguments(use))},"
