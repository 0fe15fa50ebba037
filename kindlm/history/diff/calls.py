"""What changed in the tools that were called: two sequences of calls, brought in line.

Calls that are the same on both sides hold the sequences together; between them calls of the same
tool belong together, in order. What is left was removed or added, or, where the same tool was
called elsewhere, moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from kindlm.alignment import Bounds, in_sequence
from kindlm.matching import Reason, equal, mismatches

__all__ = ["Call", "CallChange", "CallEdit", "ChangedValue", "compare_arguments", "diff_calls"]

_MOST_COMPARED = 300
"""Of longer sequences, so many calls are compared: the work grows with their product."""

_MOST_ARGUMENTS = 100
_ONCE = Bounds(1, 1)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool. `arguments` is a JSON value; a text if the model wrote no JSON.

    `turn` is that of the conversation which it was made in.
    """

    tool: str
    arguments: Any
    turn: int = 1


class CallEdit(StrEnum):
    """What became of a call. Moved: it was made at another time, relative to the others.

    Or in another turn of the conversation.
    """

    SAME = "same"
    ARGUMENTS = "arguments"
    ADDED = "added"
    REMOVED = "removed"
    MOVED = "moved"


class ChangedValue(NamedTuple):
    """A place, such as `items[0].price` of a call's arguments, and what is there on both sides.

    `was_there` and `is_there` tell a value that is null from one that is not there.
    """

    path: str
    before: Any
    after: Any
    was_there: bool = True
    is_there: bool = True


@dataclass(frozen=True, slots=True)
class CallChange:
    """A call on one side or on both, with its positions, from 0, and where its arguments differ.

    `made` are its arguments as it was made last: after, or before if it was removed. A moved call
    stands where it is made now. `turns` are those it was made in, before and after.
    """

    edit: CallEdit
    tool: str
    before: int | None
    after: int | None
    made: Any
    arguments: tuple[ChangedValue, ...] = ()
    turns: tuple[int | None, int | None] = (None, None)


@dataclass(frozen=True, slots=True)
class _Pair:
    before: int
    after: int


def diff_calls(before: Sequence[Call], after: Sequence[Call]) -> tuple[CallChange, ...]:
    """Compare the calls of two executions, in the order of the newer one.

    What was removed stands where it was. Of very long sequences, the first 300 are compared.
    """
    old, new = before[:_MOST_COMPARED], after[:_MOST_COMPARED]
    pairs = _aligned(old, new)
    changes = list(_in_order(old, new, pairs))
    return tuple(_with_moves(changes, old, new))


def compare_arguments(before: Any, after: Any) -> tuple[ChangedValue, ...]:
    """Return where two JSON values differ, key by key: first what changed or went, then new keys.

    Arrays of different lengths are one difference.
    """
    changed = [
        ChangedValue(m.path, m.expected, m.actual, is_there=m.reason is not Reason.MISSING)
        for m in mismatches(before, after)
    ]
    added = [
        ChangedValue(m.path, None, m.expected, was_there=False)
        for m in mismatches(after, before)
        if m.reason is Reason.MISSING
    ]
    return tuple([*changed, *added][:_MOST_ARGUMENTS])


def _aligned(old: Sequence[Call], new: Sequence[Call]) -> list[_Pair]:
    """Return the calls that belong together, in order."""
    anchors = _matched([[_same(call, made) for made in new] for call in old], _Pair(0, 0), new)
    pairs: list[_Pair] = []
    start = _Pair(0, 0)
    for end in [*anchors, _Pair(len(old), len(new))]:
        between = [
            [call.tool == made.tool for made in new[start.after : end.after]]
            for call in old[start.before : end.before]
        ]
        pairs.extend(_matched(between, start, new[start.after : end.after]))
        if end.before < len(old):
            pairs.append(end)
        start = _Pair(end.before + 1, end.after + 1)
    return pairs


def _matched(fits: list[list[bool]], start: _Pair, new: Sequence[Call]) -> list[_Pair]:
    """Return as many pairs that fit as possible, in order; positions count from `start`."""
    if not fits or not new:
        return []
    owners = in_sequence(fits, [_ONCE] * len(fits), len(new), others_allowed=False)
    return [
        _Pair(start.before + owner, start.after + position)
        for position, owner in enumerate(owners)
        if owner is not None
    ]


def _same(one: Call, other: Call) -> bool:
    return one.tool == other.tool and equal(one.arguments, other.arguments)


def _in_order(
    old: Sequence[Call], new: Sequence[Call], pairs: Sequence[_Pair]
) -> Iterator[CallChange]:
    x = y = 0
    for pair in [*pairs, _Pair(len(old), len(new))]:
        for position in range(x, pair.before):
            yield _alone(CallEdit.REMOVED, old[position], position, None)
        for position in range(y, pair.after):
            yield _alone(CallEdit.ADDED, new[position], None, position)
        if pair.before < len(old):
            yield _compared(old, new, pair)
        x, y = pair.before + 1, pair.after + 1


def _alone(edit: CallEdit, call: Call, before: int | None, after: int | None) -> CallChange:
    turns = (
        None if before is None else call.turn,
        None if after is None else call.turn,
    )
    return CallChange(edit, call.tool, before, after, call.arguments, turns=turns)


def _compared(old: Sequence[Call], new: Sequence[Call], pair: _Pair) -> CallChange:
    call, made = old[pair.before], new[pair.after]
    arguments = compare_arguments(call.arguments, made.arguments)
    edit = CallEdit.ARGUMENTS if arguments else CallEdit.SAME
    if call.turn != made.turn:
        edit = CallEdit.MOVED
    turns = call.turn, made.turn
    return CallChange(edit, made.tool, pair.before, pair.after, made.arguments, arguments, turns)


def _with_moves(
    changes: Sequence[CallChange], old: Sequence[Call], new: Sequence[Call]
) -> Iterator[CallChange]:
    """Join a call that was removed with one of the same tool that was added elsewhere.

    One with the same arguments is preferred.
    """
    removed = [change for change in changes if change.edit is CallEdit.REMOVED]
    added = [change for change in changes if change.edit is CallEdit.ADDED]
    moved: dict[int | None, CallChange] = {}
    for fits in (_same, _same_tool):
        for change in [change for change in added if change.after not in moved]:
            source = next((gone for gone in removed if fits(_call(gone), _call(change))), None)
            if source is None or source.before is None or change.after is None:
                continue
            removed.remove(source)
            pair = _compared(old, new, _Pair(source.before, change.after))
            moved[change.after] = replace(pair, edit=CallEdit.MOVED)
    for change in changes:
        if change.edit is CallEdit.ADDED:
            yield moved.get(change.after, change)
        elif change.edit is not CallEdit.REMOVED or change in removed:
            yield change


def _call(change: CallChange) -> Call:
    return Call(change.tool, change.made)


def _same_tool(one: Call, other: Call) -> bool:
    return one.tool == other.tool
