"""Where the calls that were made differ from a trajectory, told as the nearest miss.

A call that is missing and one that is too many are told as one difference where they belong
together: a call that was made at the wrong time, or with other arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kindlm.alignment import Assignment, Bounds, Fits
from kindlm.checks.call_wording import differences, written_arguments
from kindlm.matching import mismatches
from kindlm.transcript import ToolUse
from kindlm.wording import count, shown

__all__ = ["Difference", "Entry", "Trajectory", "found_differences"]

_UNCOMPARABLE = 1_000
"""Arguments that are no JSON are further away than any that are."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An expected call; `arguments` are matched partially, None matches all."""

    tool: str
    arguments: Any
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The expected calls, those that were made, and which of them was taken for which."""

    entries: Sequence[Entry]
    uses: Sequence[ToolUse]
    fits: Fits
    owners: Assignment
    others_allowed: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference: an entry, a call, or both of them, and what is wrong in words."""

    kind: str
    message: str
    entry: int | None = None
    call: int | None = None


def found_differences(found: Trajectory) -> list[Difference]:
    """Return all differences, those of calls in their order, then what is missing."""
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


def _reordered(found: Trajectory, missing: list[int], spare: list[int]) -> Iterator[Difference]:
    """Yield calls that were made at another time, and take them from both lists."""
    for entry in list(missing):
        call = next((call for call in spare if found.fits[entry][call]), None)
        if call is not None:
            missing.remove(entry)
            spare.remove(call)
            message = f"{_call(found, call)} comes {_direction(found, entry, call)}"
            yield Difference("order", message, entry, call)


def _direction(found: Trajectory, entry: int, call: int) -> str:
    placed = [(other, owner) for other, owner in enumerate(found.owners) if owner is not None]
    followers = [other for other, owner in placed if owner > entry and other < call]
    if followers:
        return f"too late, expected before call {followers[0]}"
    leaders = [other for other, owner in placed if owner < entry and other > call]
    if leaders:
        return f"too early, expected after call {leaders[-1]}"
    return "at another place than expected"


def _other_arguments(
    found: Trajectory, missing: list[int], spare: list[int]
) -> Iterator[Difference]:
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
            yield Difference("arguments", message, entry, call)


def _unexpected(found: Trajectory, call: int) -> Difference:
    use = found.uses[call]
    near = [
        (_distance(found, entry, call), entry)
        for entry, item in enumerate(found.entries)
        if item.tool == use.call.name
    ]
    if not near:
        message = f"{_call(found, call)} is not expected"
        return Difference("unexpected", message, None, call)
    distance, entry = min(near)
    if distance == 0:
        message = f"{_call(found, call)} is one too many"
    else:
        message = f"{_call(found, call)} is not expected: {_reasons(found, entry, call)}"
    return Difference("unexpected", message, entry, call)


def _absent(found: Trajectory, missing: Sequence[int]) -> Iterator[Difference]:
    for entry in dict.fromkeys(missing):
        item, lacking = found.entries[entry], missing.count(entry)
        which = f" with {shown(item.arguments)}" if item.arguments is not None else ""
        often = f", {lacking} of {item.bounds.low} times" if item.bounds.low > 1 else ""
        yield Difference("missing", f"{shown(item.tool)}{which} was not called{often}", entry)


def _too_many(found: Trajectory) -> Iterator[Difference]:
    """Yield entries with more calls than they may have, where others are allowed."""
    if not found.others_allowed:
        return
    for entry, item in enumerate(found.entries):
        most, made = item.bounds.high, sum(found.fits[entry])
        if most is not None and made > most:
            message = f"{shown(item.tool)}: expected at most {count(most, 'call')}, got {made}"
            yield Difference("count", message, entry)


def _distance(found: Trajectory, entry: int, call: int) -> int:
    wanted, use = found.entries[entry].arguments, found.uses[call]
    if wanted is None:
        return 0
    if use.call.malformed is not None:
        return _UNCOMPARABLE
    return len(mismatches(wanted, use.call.arguments))


def _reasons(found: Trajectory, entry: int, call: int) -> str:
    use = found.uses[call]
    if use.call.malformed is not None:
        return f"its arguments are no JSON object: {shown(use.call.malformed)}"
    return differences(mismatches(found.entries[entry].arguments, use.call.arguments))


def _call(found: Trajectory, call: int) -> str:
    use = found.uses[call]
    return f"call {call}, {shown(use.call.name)} with {shown(written_arguments(use))},"
