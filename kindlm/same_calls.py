"""Recognises a tool call that is reported in several places, or both reported and seen.

Many agents report the same calls twice, as steps and in OpenAI's form. Others report some calls in
one place and some in another, so reading one place alone could miss a forbidden call. Observers
also see calls that the agent reports.

A call without an id has an empty one while calls are compared, since an id that kindlm made up says
nothing about sameness.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import TypeAlias

from kindlm.dataclass import replace
from kindlm.matching import canonical
from kindlm.transcript import UNNAMED, ToolCall, ToolUse

_Key: TypeAlias = Callable[[ToolCall], Hashable | None]
"""What calls are compared by; None of a call that is not compared by it."""


def told_before(known: Sequence[ToolCall], later: Sequence[ToolCall]) -> list[int | None]:
    """Return for each later call which known one it tells again: a position, None if it is new.

    They are the same if id and name are, and the arguments as far as both have some; else if name
    and arguments are; else if the name is and one of them has no arguments, unless both have ids.
    Each known call is repeated once, but for calls that add nothing: without arguments, and with
    an id and a name that are known.
    """
    found: list[int | None] = [None] * len(later)
    left = dict.fromkeys(range(len(known)))
    for of_known, of_later in _WAYS:
        waiting = defaultdict[Hashable, deque[int]](deque)
        for position in left:
            waiting[of_known(known[position])].append(position)
        for index, call in enumerate(later):
            key = of_later(call) if found[index] is None else None
            if key is not None and waiting[key]:
                found[index] = position = waiting[key].popleft()
                del left[position]
    ids = {_identity(call): position for position, call in enumerate(known) if call.id}
    return [
        ids.get(_identity(call)) if place is None and _is_bare(call) else place
        for call, place in zip(later, found, strict=True)
    ]


def tells_again(known: ToolCall, later: ToolCall) -> bool:
    """Return whether two calls are the same by id and name, and by what arguments both have."""
    if not known.id or _identity(known) != _identity(later):
        return False
    return _is_bare(known) or _is_bare(later) or _arguments(known) == _arguments(later)


def completed(use: ToolUse, again: ToolUse) -> ToolUse:
    """Return a call with what only another telling of it has: an id, arguments, an answer."""
    call, other = use.call, again.call
    if _is_bare(call):
        call = replace(call, arguments=other.arguments, malformed=other.malformed)
    call = replace(call, id=call.id or other.id)
    return replace(
        use, call=call, response=again.response if use.response is None else use.response
    )


def uses_together(
    known: Sequence[ToolUse], later: Sequence[ToolUse], *, by_id: bool = True
) -> list[ToolUse]:
    """Return known calls, completed by later ones that tell them again, and those that are new.

    `by_id` is false where ids are those of something else, and say nothing of what is the same.
    """
    calls = [use.call if by_id else replace(use.call, id="") for use in (*known, *later)]
    return joined(known, later, told_before(calls[: len(known)], calls[len(known) :]))


class Told:
    """Calls that are known, to find out whether something else reports one of them again.

    That is a call with the same name and arguments, or one without arguments whose name is known.
    A call of an `earlier` answer is known by its id alone.
    """

    def __init__(self, calls: Iterable[ToolCall], earlier: Iterable[ToolCall] = ()) -> None:
        calls = list(calls)
        self._by_id = {call.id: call for call in (*earlier, *calls) if call.id}
        self._names = {call.name for call in calls}
        self._said = {_said(call) for call in calls}

    def has(self, call: ToolCall) -> bool:
        """Return whether a call is known; what tells only its id may be its result."""
        same = self._by_id.get(call.id)
        if same is not None and call.name in (same.name, UNNAMED):
            return _is_bare(call) or _arguments(call) == _arguments(same)
        return call.name in self._names if _is_bare(call) else _said(call) in self._said


def seen_together(told: Sequence[ToolUse], seen: Sequence[ToolUse]) -> list[ToolUse]:
    """Return the calls that an agent told, completed by those that were seen, and all others.

    A call with an id and a name that were seen is that call, with any arguments.
    Any other id is the agent's own.
    """
    ids = {_identity(use.call) for use in seen}
    known = [
        replace(use.call, arguments={}, malformed=None)
        if _identity(use.call) in ids
        else replace(use.call, id="")
        for use in told
    ]
    return joined(told, seen, told_before(known, [use.call for use in seen]))


def joined(
    known: Sequence[ToolUse], later: Sequence[ToolUse], places: Sequence[int | None]
) -> list[ToolUse]:
    """Return known calls, completed by the later ones that `told_before` found, and new ones."""
    uses = list(known)
    for use, place in zip(later, places, strict=True):
        if place is None:
            uses.append(use)
        else:
            uses[place] = completed(uses[place], use)
    return uses


def with_ids(uses: Iterable[ToolUse]) -> tuple[ToolUse, ...]:
    """Return calls with ids for those without one; nothing refers to these."""
    return tuple(
        use if use.call.id else replace(use, call=replace(use.call, id=f"call_{index}"))
        for index, use in enumerate(uses)
    )


def _identity(call: ToolCall) -> tuple[str, str]:
    return call.id, call.name


def _is_bare(call: ToolCall) -> bool:
    """Return whether a call has no arguments; many tellings leave them out."""
    return not call.arguments and call.malformed is None


def _arguments(call: ToolCall) -> str:
    """Return the arguments as a text that is the same for the same JSON, in which 1.0 is 1."""
    if call.malformed is not None:
        return call.malformed
    return canonical(call.arguments)


def _only(of: Callable[[ToolCall], object], key: _Key) -> _Key:
    return lambda call: key(call) if of(call) else None


def _said(call: ToolCall) -> tuple[str, str]:
    return call.name, _arguments(call)


_has_id, _name = attrgetter("id"), attrgetter("name")
_BY_ID = _only(_has_id, _identity)
_BY_ID_BARE = _only(_is_bare, _BY_ID)
_BY_ALL = _only(_has_id, lambda call: (*_identity(call), _arguments(call)))
_BARE = _only(_is_bare, _name)
_WITHOUT_ID = _only(lambda call: not call.id, _name)
_BARE_WITHOUT_ID = _only(_is_bare, _WITHOUT_ID)

_WAYS: tuple[tuple[_Key, _Key], ...] = (
    (_BY_ALL, _BY_ALL),
    (_BY_ID_BARE, _BY_ID),
    (_BY_ID, _BY_ID_BARE),
    (_said, _said),
    (_BARE_WITHOUT_ID, _name),
    (_name, _BARE_WITHOUT_ID),
    (_BARE, _WITHOUT_ID),
    (_WITHOUT_ID, _BARE),
)
"""How a known call and a later one are found to be the same, the surest way first."""
