"""Aligns two sequences of tool calls, and returns what changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from operator import itemgetter
from typing import Any, NamedTuple

from kindlm.dataclass import dataclass
from kindlm.matching import Bounds, equal, in_sequence, mismatches
from kindlm.projections import GONE

_MOST_COMPARED = 300
"""The most calls of a sequence that are aligned, since the work is quadratic."""

_ONCE = Bounds(1, 1)


class Call(NamedTuple):
    """A tool call; `arguments` is a JSON value, or a string if the model wrote invalid JSON.

    `turn` counts from 1, and `position` among all calls from 0.
    """

    tool: str
    arguments: Any
    turn: int = 1
    position: int = 0


class CallEdit(StrEnum):
    """How a call changed; a moved call is made in another turn, or in another order."""

    SAME = "same"
    ARGUMENTS = "arguments"
    ADDED = "added"
    REMOVED = "removed"
    MOVED = "moved"


class ChangedValue(NamedTuple):
    """A path, such as `items[0].price`, and its values on both sides, or `ABSENT`."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class CallChange:
    """A call on one side or on both, and the differences of its arguments."""

    edit: CallEdit
    before: Call | None
    after: Call | None
    arguments: tuple[ChangedValue, ...] = ()

    @property
    def made(self) -> Call:
        """The call after, or the removed call before."""
        call = self.after or self.before
        assert call is not None
        return call


def diff_calls(before: Sequence[Call], after: Sequence[Call]) -> tuple[CallChange, ...]:
    """Compare the calls of two executions; after the first 300, each with that at its position.

    The result is in the order of the newer execution, with removed calls at their old places.
    """
    old, new = before[:_MOST_COMPARED], after[:_MOST_COMPARED]
    # The old call of each new one that kept its place: equal calls, and between them equal tools.
    kept: dict[int, int] = {}
    x = y = 0
    for was, now in [*_pair_most(old, new, _same), (len(old), len(new))]:
        between = _pair_most(old[x:was], new[y:now], _same_tool)
        kept |= {y + partner: x + place for place, partner in between} | {now: was}
        x, y = was + 1, now + 1
    del kept[len(new)]
    # A removed call that was added elsewhere has moved; equal arguments are preferred.
    sources, gone = dict(kept), sorted({*range(len(old))} - {*kept.values()})
    for fits in (_same, _same_tool):
        for place in range(len(new)):
            source = next((each for each in gone if fits(old[each], new[place])), None)
            if place not in sources and source is not None:
                sources[place] = source
                gone.remove(source)
    # The place of a removed call is behind the calls that preceded it on both sides.
    place_of = {x: max((now + 1 for now in kept if kept[now] < x), default=0) for x in gone}
    for place in range(_MOST_COMPARED, len(before)):
        if place < len(after) and _same_tool(before[place], after[place]):
            sources[place] = kept[place] = place
        else:
            place_of[place] = place
    changes = [((place_of[x], 0), CallChange(CallEdit.REMOVED, before[x], None)) for x in place_of]
    for place, made in enumerate(after):
        change = CallChange(CallEdit.ADDED, None, made)
        if place in sources:
            change = _compared(before[sources[place]], made, is_moved=place not in kept)
        changes.append(((place, 1), change))
    return tuple(change for _, change in sorted(changes, key=itemgetter(0)))


def compare_arguments(before: Any, after: Any) -> tuple[ChangedValue, ...]:
    """Return the differences of two JSON values; arrays of different lengths are one."""
    return tuple(ChangedValue(*found) for found in mismatches(before, after, exact=True))


def is_gone(call: Call) -> bool:
    """Return whether the arguments of a call were erased or withheld."""
    return any(call.arguments == gone for gone in GONE)


def _compared(call: Call, made: Call, *, is_moved: bool) -> CallChange:
    arguments = () if _same(call, made) else compare_arguments(call.arguments, made.arguments)
    edit = CallEdit.ARGUMENTS if arguments else CallEdit.SAME
    if is_moved or call.turn != made.turn:
        edit = CallEdit.MOVED
    return CallChange(edit, call, made, arguments)


def _pair_most(
    old: Sequence[Call], new: Sequence[Call], fits: Callable[[Call, Call], bool]
) -> list[tuple[int, int]]:
    table = [[fits(call, made) for made in new] for call in old]
    owners = in_sequence(table, [_ONCE] * len(old), len(new), others_allowed=False)
    return [(owner, place) for place, owner in enumerate(owners) if owner is not None]


def _same(one: Call, other: Call) -> bool:
    """Return whether calls are equal, as far as known: arguments may be erased or withheld."""
    gone = is_gone(one) or is_gone(other)
    return one.tool == other.tool and (gone or equal(one.arguments, other.arguments))


def _same_tool(one: Call, other: Call) -> bool:
    return one.tool == other.tool
