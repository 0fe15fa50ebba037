"""Matches values partially, and assigns calls to the entries of a list of expected ones.

One matcher serves `when`, `argsMatch` and every other partial match. Both sides are JSON values.
Every key that is expected must exist and match, further keys are allowed at every level; arrays
have equal length and match in order; numbers compare by value (1 = 1.0, and a boolean is no
number); strings compare exactly; null equals only null, not a missing key; the order of keys does
not matter. Nothing is coerced. The walk keeps its own stack, so that no depth of nesting overflows
Python's, and it visits no more than `actual` holds.

In an assignment a call and an entry are numbers; `fits[entry][call]` says whether the call is what
the entry asks for. An assignment names the entry of each call, None where it has none.
`in_any_order` and `in_sequence` find the best assignment: a call may fit several entries, so taking
the first one would be wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kindlm.dataclass import dataclass

# The way from the root, last part first: a walk of any depth shares what its paths have in common.
_Path: TypeAlias = "tuple[_Path | None, str | int]"

ABSENT: Final = object()
"""Stands for a value that is not there; null is something."""

_INDEX = re.compile(r"[0-9]{1,9}")
_PLAIN_KEY = re.compile(r"[^\W\d][\w-]*")


class Mismatch(NamedTuple):
    """One place where the actual value is not what was expected.

    `path` leads there from the root, as in `items[0].price`; it is empty for the root itself.
    `actual` is `ABSENT` where there is no value, `expected` where there may be none.
    """

    path: str
    expected: Any
    actual: Any


def matches(expected: Any, actual: Any, *, exact: bool = False) -> bool:
    """Return whether `actual` has all that `expected` asks for; with `exact`, nothing more."""
    return next(_walk(expected, actual, exact=exact), None) is None


def equal(left: Any, right: Any) -> bool:
    """Return whether two JSON values are the same: each has all that the other one has."""
    return matches(left, right) and matches(right, left)


def canonical(value: Any) -> str:
    """Return a text that JSON values share if they are equal."""
    return json.dumps(json.loads(json.dumps(value), parse_float=_number), sort_keys=True)


def _number(digits: str) -> int | float:
    number = float(digits)
    return int(number) if number.is_integer() else number


def state_matches(wanted: Mapping[str, Any], state: Any) -> bool:
    """Return whether a state has everything that is wanted, as `matches` means it.

    A key that is wanted to be `{"$absent": true}` must not be there, at whatever level it stands;
    where its parent is absent, it is so too.
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
    """Return every place where `actual` differs from `expected`, in the order of `expected`.

    With `exact`, further keys are differences, too.
    """
    return list(_walk(expected, actual, exact=exact))


def value_at(value: Any, parts: Iterable[str | int]) -> Any:
    """Return what names and indices lead to inside of a JSON value, `ABSENT` if nothing is there.

    An index may be written as a text.
    """
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
    """Return the JSON type of a value."""
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
    """Return a path as a text, such as `items[0].price`."""
    texts = (
        f".{part}" if isinstance(part, str) and _PLAIN_KEY.fullmatch(part) else f"[{part!r}]"
        for part in parts
    )
    return "".join(texts).removeprefix(".")


Fits: TypeAlias = Sequence[Sequence[bool]]
Assignment: TypeAlias = list[int | None]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many calls an entry takes: `low` at least, `high` at most, None for any number."""

    low: int
    high: int | None

    def holds(self, number: int) -> bool:
        """Return whether a number of calls is within the bounds."""
        return self.low <= number and (self.high is None or number <= self.high)


@dataclass(frozen=True, slots=True)
class _Slot:
    """A place in a sequence for a call of an entry; one that `repeats` takes any number."""

    entry: int
    required: bool
    repeats: bool = False


def in_any_order(fits: Fits, bounds: Sequence[Bounds], calls: int) -> Assignment:
    """Assign calls so that as many as possible of those each entry needs are there, then the rest.

    This is a maximum matching of calls with places of entries, found by augmenting paths: first
    with `low` places each, then with `high`. A path never takes a call away from an entry without
    giving it another one, so that what the first round found stays found. Calls that fit the same
    entries are alike: a path looks at one of them.
    """
    matching = _Matching(fits, calls)
    for room in ([item.low for item in bounds], [item.high for item in bounds]):
        full = set[int]()
        for call in range(calls):
            if matching.owners[call] is None:
                matching.augment(call, room, full)
    return matching.owners


class _Matching:
    """Which calls the entries have, each by what they fit."""

    def __init__(self, fits: Fits, calls: int) -> None:
        self.owners: Assignment = [None] * calls
        self._fitting = [
            tuple(entry for entry, row in enumerate(fits) if row[call]) for call in range(calls)
        ]
        self._taken = [0] * len(fits)
        self._calls_of = [dict[tuple[int, ...], list[int]]() for _ in fits]

    def augment(self, call: int, room: Sequence[int | None], full: set[int]) -> None:
        """Find an entry for a call, if need be by moving other calls to other entries.

        `full` are entries that no path leads on from; those that are found join them.
        """
        reached_by: dict[int, int] = {}
        queue = [call]
        for moving in queue:
            for entry in self._fitting[moving]:
                if entry in reached_by or entry in full:
                    continue
                reached_by[entry] = moving
                limit = room[entry]
                if limit is None or self._taken[entry] < limit:
                    self._taken[entry] += 1
                    self._flip(entry, reached_by, call)
                    return
                queue.extend(alike[-1] for alike in self._calls_of[entry].values() if alike)
        full.update(reached_by)

    def _flip(self, entry: int, reached_by: Mapping[int, int], start: int) -> None:
        """Give each entry on the path the call it was reached by, from its end to its start."""
        while True:
            moved = reached_by[entry]
            before = self.owners[moved]
            self.owners[moved] = entry
            alike = self._fitting[moved]
            if before is not None:
                self._calls_of[before][alike].pop()
            self._calls_of[entry].setdefault(alike, []).append(moved)
            if moved == start:
                return
            assert before is not None
            entry = before


def in_sequence(
    fits: Fits, bounds: Sequence[Bounds], calls: int, *, others_allowed: bool
) -> Assignment:
    """Assign calls to entries whose order is that of the calls, leaving out as little as possible.

    What is left out is places that an entry needs, and calls, unless others are allowed. With
    those, `high` says nothing: a call too many is another one.
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
    # More places than there are calls stay empty in any case.
    slots = [_Slot(entry, required=True)] * min(bounds.low, calls + 1)
    if required_only:
        return slots
    if bounds.high is None:
        return [*slots, _Slot(entry, required=False, repeats=True)]
    return slots + [_Slot(entry, required=False)] * min(bounds.high - bounds.low, calls)


def _costs(slots: list[_Slot], fits: Fits, calls: int, *, cost_of_other: int) -> list[list[int]]:
    """Return what it costs to bring the calls from one on in line with the slots from one on."""
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
