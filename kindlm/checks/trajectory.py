"""The check of a trajectory: which tools were called, as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kindlm.alignment import Assignment, Bounds, Fits, in_any_order, in_sequence
from kindlm.checks.calls import (
    arguments_match,
    bounds_of,
    differences,
    undecided_for_a_name,
    written_arguments,
)
from kindlm.checks.registry import Reads, check
from kindlm.checks.results import failed, passed
from kindlm.matching import mismatches
from kindlm.outcome import CheckResult, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import ToolUse, Transcript
from kindlm.wording import bounded, count, listed, shown

__all__ = ["trajectory"]

_MAX_LISTED = 6
_MAX_ACTUAL = 30
_UNCOMPARABLE = 1_000
"""Arguments that are no JSON are further away than any that are."""


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
def trajectory(expectation: Expectation, transcript: Transcript) -> CheckResult:
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
    params, uses = expectation.params, transcript.tool_uses
    mode = _Mode(params["mode"])
    rule = _RULES[mode]
    entries = [
        _Entry(item["tool"], item.get("argsMatch"), _bounds(mode, item.get("count")))
        for item in params["calls"]
    ]
    fits = [[entry.fits(use) for use in uses] for entry in entries]
    bounds = [entry.bounds for entry in entries]
    others_allowed = rule.others_allowed
    if rule.in_sequence:
        owners = in_sequence(fits, bounds, len(uses), others_allowed=others_allowed)
    else:
        if others_allowed:
            bounds = [Bounds(item.low, item.low) for item in bounds]
        owners = in_any_order(fits, bounds, len(uses))
    wrong = _differences(_Trajectory(entries, uses, fits, owners, others_allowed))
    if not wrong:
        doubts = (
            undecided_for_a_name(expectation, entry.tool, uses, arguments=entry.arguments)
            for entry in entries
            if others_allowed and entry.bounds.high is not None
        )
        return next(filter(None, doubts), None) or passed(expectation)
    first = listed((item.message for item in wrong[:_MAX_LISTED]), len(wrong))
    return failed(
        expectation,
        FailureCode.TRAJECTORY_MISMATCH,
        f"The calls are not as expected ({params['mode']}): {first}.",
        expected={"mode": params["mode"], "calls": bounded(params["calls"])},
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


def _bounds(mode: _Mode, count: Mapping[str, Any] | None) -> Bounds:
    if count is None:
        return _RULES[mode].usual
    if mode is _Mode.SUBSET:
        count = {"min": 0} | {name: value for name, value in count.items() if value is not None}
    return bounds_of(count)


@dataclass(frozen=True, slots=True)
class _Entry:
    """An expected call; `arguments` are matched partially, None matches all."""

    tool: str
    arguments: Any
    bounds: Bounds

    def fits(self, use: ToolUse) -> bool:
        """Tell whether a call is what the entry asks for."""
        return use.call.name == self.tool and (
            self.arguments is None or arguments_match(self.arguments, use)
        )


@dataclass(frozen=True, slots=True)
class _Trajectory:
    """The expected calls, those that were made, and which of them was taken for which."""

    entries: Sequence[_Entry]
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
        for entry, item in enumerate(found.entries)
        for _ in range(item.bounds.low - found.owners.count(entry))
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
        item, lacking = found.entries[entry], missing.count(entry)
        which = f" with {shown(item.arguments)}" if item.arguments is not None else ""
        often = f", {lacking} of {item.bounds.low} times" if item.bounds.low > 1 else ""
        yield _Difference("missing", f"{shown(item.tool)}{which} was not called{often}", entry)


def _too_many(found: _Trajectory) -> Iterator[_Difference]:
    """Yield entries with more calls than they may have, where others are allowed."""
    if not found.others_allowed:
        return
    for entry, item in enumerate(found.entries):
        most, made = item.bounds.high, sum(found.fits[entry])
        if most is not None and made > most:
            message = f"{shown(item.tool)}: expected at most {count(most, 'call')}, got {made}"
            yield _Difference("count", message, entry)


def _distance(found: _Trajectory, entry: int, call: int) -> int:
    wanted, use = found.entries[entry].arguments, found.uses[call]
    if wanted is None:
        return 0
    if use.call.malformed is not None:
        return _UNCOMPARABLE
    return len(mismatches(wanted, use.call.arguments))


def _reasons(found: _Trajectory, entry: int, call: int) -> str:
    use = found.uses[call]
    if use.call.malformed is not None:
        return f"its arguments are no JSON object: {shown(use.call.malformed)}"
    return differences(mismatches(found.entries[entry].arguments, use.call.arguments))


def _call(found: _Trajectory, call: int) -> str:
    use = found.uses[call]
    return f"call {call}, {shown(use.call.name)} with {shown(written_arguments(use))},"
