"""Matches JSON values partially, and assigns calls to a list of expected ones.

All partial matches, such as `when` and `argsMatch`, follow these rules. Each expected key must
exist and match; further keys are allowed at every level, in any order. Arrays match in order and
have the same length. Numbers compare by value: 1 = 1.0, and true is no number. Strings compare
exactly; null only equals null, not a missing key. The walk has its own stack, so no nesting can
overflow Python's, and it visits at most all of `actual`.

In an assignment, calls and entries of the list are numbers, and `fits[entry][call]` is whether a
call meets an entry. An assignment has the entry of each call, or None. Since a call may meet
several entries, `in_any_order` and `in_sequence` search for the best assignment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kindlm.dataclass import dataclass

# The path from the root, last part first, so that paths share their beginnings.
_Path: TypeAlias = "tuple[_Path | None, str | int]"

ABSENT: Final = object()
"""Stands for an absent value, unlike null."""

_INDEX = re.compile(r"[0-9]{1,9}")
_PART = re.compile(r"\['([^']*)'\]|([^.\[\]]+)")
_PLAIN_KEY = re.compile(r"[^\W\d][\w-]*")


class Mismatch(NamedTuple):
    """A place where the actual value differs from the expected one.

    `path` is such as `items[0].price`, "" for the root. `actual` is `ABSENT` if the value is
    missing, `expected` if it must not exist.
    """

    path: str
    expected: Any
    actual: Any


def matches(expected: Any, actual: Any) -> bool:
    """Return whether `actual` matches `expected`."""
    return next(_walk(expected, actual), None) is None


def equal(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal by the rules of this module."""
    return matches(left, right) and matches(right, left)


def canonical(value: Any) -> str:
    """Return a text that is the same for equal JSON values."""
    return json.dumps(json.loads(json.dumps(value), parse_float=_number), sort_keys=True)


def _number(digits: str) -> int | float:
    number = float(digits)
    return int(number) if number.is_integer() else number


def state_matches(wanted: Mapping[str, Any], state: Any) -> bool:
    """Return whether a state matches, by the rules of `matches`.

    A key whose wanted value is `{"$absent": true}`, at any level, must not exist; nor does it exist
    if its parent is absent.
    """
    return isinstance(state, Mapping) and all(
        _holds(want, state, key) for key, want in wanted.items()
    )


def _holds(want: Any, state: Mapping[str, Any], key: str) -> bool:
    if not isinstance(want, Mapping):
        return key in state and matches(want, state[key])
    if want.get("$absent") is True:
        return key not in state
    if key not in state:
        return bool(want) and state_matches(want, {})
    return state_matches(want, state[key])


def mismatches(expected: Any, actual: Any, *, exact: bool = False) -> list[Mismatch]:
    """Return all differences, in the order of `expected`; with `exact`, also further keys."""
    return list(_walk(expected, actual, exact=exact))


def path_parts(path: str) -> list[str]:
    """Return the parts of a path such as `items[0].price` or `items.0.price`, without brackets.

    A name with dots is written as `['a.b']`.
    """
    return list(map("".join, _PART.findall(path)))


def value_at(value: Any, parts: Iterable[str | int]) -> Any:
    """Return the value at a path in a JSON value, or `ABSENT`; an index may be text."""
    for part in parts:
        if isinstance(value, Mapping):
            value = value.get(str(part), ABSENT)
        elif isinstance(value, list) and _INDEX.fullmatch(str(part)) and int(part) < len(value):
            value = value[int(part)]
        else:
            return ABSENT
    return value


def _walk(expected: Any, actual: Any, *, exact: bool = False) -> Iterator[Mismatch]:
    pending: list[tuple[_Path | None, Any, Any]] = [(None, expected, actual)]
    while pending:
        path, want, got = pending.pop()
        if got is ABSENT:
            yield Mismatch(_text(path), want, ABSENT)
            continue
        kind = _kind(want)
        if kind != _kind(got):
            yield Mismatch(_text(path), want, got)
        elif kind == "object":
            keys = reversed(list(want))
            pending.extend(((path, key), want[key], got.get(key, ABSENT)) for key in keys)
            for key in got if exact else ():
                if key not in want:
                    yield Mismatch(_text((path, key)), ABSENT, got[key])
        elif kind == "array":
            if len(want) != len(got):
                yield Mismatch(_text(path), want, got)
                continue
            indices = reversed(range(len(want)))
            pending.extend(((path, index), want[index], got[index]) for index in indices)
        elif want != got:
            yield Mismatch(_text(path), want, got)


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case Mapping():
            return "object"
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _text(path: _Path | None) -> str:
    parts: list[str | int] = []
    while path is not None:
        path, part = path
        parts.append(part)
    return written_path(reversed(parts))


def written_path(parts: Iterable[str | int]) -> str:
    """Return a path as text, such as `items[0].price`."""
    texts = (
        f".{part}" if isinstance(part, str) and _PLAIN_KEY.fullmatch(part) else f"[{part!r}]"
        for part in parts
    )
    return "".join(texts).removeprefix(".")


Fits: TypeAlias = Sequence[Sequence[bool]]
Assignment: TypeAlias = list[int | None]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many calls an entry takes: from `low` to `high`, or any number if that is None."""

    low: int
    high: int | None

    def holds(self, number: int) -> bool:
        """Return whether a number of calls is within the bounds."""
        return self.low <= number and (self.high is None or number <= self.high)


@dataclass(frozen=True, slots=True)
class _Slot:
    """A place in a sequence for a call that meets an entry; with `repeats`, for any number."""

    entry: int
    required: bool
    repeats: bool = False


def in_any_order(fits: Fits, bounds: Sequence[Bounds], calls: int) -> Assignment:
    """Assign as many calls as possible: first those that entries need, then the others.

    It finds a maximum matching by augmenting paths: first with `low` places for each entry, then
    with `high`. A path only takes a call from an entry to replace it, so the second round keeps the
    number of calls that the first one assigned.
    """
    owners: Assignment = [None] * calls
    fitting = [[entry for entry, row in enumerate(fits) if row[call]] for call in range(calls)]
    calls_of = [set[int]() for _ in fits]

    def assign(call: int, room: Sequence[int | None], full: set[int]) -> None:
        """Find an entry for a call, if necessary by moving other calls to other entries.

        `full` has the entries from which no path leads to room, and gets those that it finds.
        """
        reached_by: dict[int, int] = {}
        queue = [call]
        for moving in queue:  # which grows
            for entry in fitting[moving]:
                if entry in reached_by or entry in full:
                    continue
                reached_by[entry] = moving
                limit = room[entry]
                if limit is None or len(calls_of[entry]) < limit:
                    move(entry, reached_by)
                    return
                queue.extend(calls_of[entry])
        full.update(reached_by)

    def move(entry: int | None, reached_by: Mapping[int, int]) -> None:
        """Give each entry on the path the call that reached it, from the end to the start."""
        while entry is not None:
            moved = reached_by[entry]
            calls_of[entry].add(moved)
            before, owners[moved] = owners[moved], entry
            if before is not None:
                calls_of[before].remove(moved)
            entry = before

    for room in ([item.low for item in bounds], [item.high for item in bounds]):
        full = set[int]()
        for call in range(calls):
            if owners[call] is None:
                assign(call, room, full)
    return owners


def in_sequence(
    fits: Fits, bounds: Sequence[Bounds], calls: int, *, others_allowed: bool
) -> Assignment:
    """Assign calls to entries in the same order, leaving out as few places and calls as possible.

    If other calls are allowed, leaving out a call costs nothing, and `high` has no effect.
    """
    slots = [
        slot
        for entry, item in enumerate(bounds)
        for slot in _slots(entry, item, calls, required_only=others_allowed)
    ]
    costs = _costs(slots, fits, calls, cost_of_other=0 if others_allowed else 1)
    owners: Assignment = [None] * calls
    slot, call = 0, 0
    while slot < len(slots) and call < calls:
        here, place = costs[slot][call], slots[slot]
        after = slot if place.repeats else slot + 1
        if fits[place.entry][call] and here == costs[after][call + 1]:
            owners[call] = place.entry
            slot, call = after, call + 1
        elif here == costs[slot + 1][call] + place.required:
            slot += 1
        else:
            call += 1
    return owners


def _slots(entry: int, bounds: Bounds, calls: int, *, required_only: bool) -> list[_Slot]:
    # More places than calls make no difference.
    slots = [_Slot(entry, required=True)] * min(bounds.low, calls + 1)
    if required_only:
        return slots
    if bounds.high is None:
        return [*slots, _Slot(entry, required=False, repeats=True)]
    return slots + [_Slot(entry, required=False)] * min(bounds.high - bounds.low, calls)


def _costs(slots: list[_Slot], fits: Fits, calls: int, *, cost_of_other: int) -> list[list[int]]:
    """Return the costs of assigning all calls from one on to all slots from one on."""
    costs = [[0] * (calls + 1) for _ in range(len(slots) + 1)]
    costs[-1] = [(calls - call) * cost_of_other for call in range(calls + 1)]
    for index in range(len(slots) - 1, -1, -1):
        slot, row, below = slots[index], costs[index], costs[index + 1]
        fitting = fits[slot.entry]
        row[calls] = below[calls] + slot.required
        for call in range(calls - 1, -1, -1):
            best = min(below[call] + slot.required, row[call + 1] + cost_of_other)
            if fitting[call]:
                best = min(best, (row if slot.repeats else below)[call + 1])
            row[call] = best
    return costs
