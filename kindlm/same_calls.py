"""Recognises a tool call that is reported in several places, or both reported and seen.

Many agents report the same calls twice, as steps and in OpenAI's form. Others report some calls in
one place and some in another, so reading one place could miss a forbidden call. Observers also see
calls that the agent reports. While calls are compared, those without an id have the id "".
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence

from kindlm.dataclass import replace
from kindlm.matching import canonical
from kindlm.transcript import UNNAMED, ToolCall, ToolUse


def places_of_repeats(known: Sequence[ToolCall], later: Sequence[ToolCall]) -> list[int | None]:
    """Return for each later call the index of the known call that it repeats, None if it is new.

    Two calls are the same, in this order, if they have

    - the same id, name and arguments, or one of them has no arguments;
    - the same name and arguments;
    - the same name, one of them has no arguments, and not both have ids.

    A known call is repeated once, or by any number of calls with only its id and name.
    """
    found: list[int | None] = [None] * len(later)
    left = dict.fromkeys(range(len(known)))
    of_known, of_later = [_keys(call) for call in known], [_keys(call) for call in later]
    for at_known, at_later in _WAYS:
        waiting = defaultdict[Hashable, deque[int]](deque)
        for position in left:
            waiting[of_known[position][at_known]].append(position)
        for index, keys in enumerate(of_later):
            key = keys[at_later] if found[index] is None else None
            if key is not None and waiting[key]:
                found[index] = position = waiting[key].popleft()
                del left[position]
    ids = {_identity(call): position for position, call in enumerate(known) if call.id}
    return [
        ids.get(_identity(call)) if place is None and _is_bare(call) else place
        for call, place in zip(later, found, strict=True)
    ]


def is_repeated_by(known: ToolCall, later: ToolCall) -> bool:
    """Return whether two calls have the same id, name and, if both have any, arguments."""
    if not known.id or _identity(known) != _identity(later):
        return False
    return _is_bare(known) or _is_bare(later) or _arguments(known) == _arguments(later)


def completed(use: ToolUse, again: ToolUse) -> ToolUse:
    """Return a call with the id, arguments and result that only another report of it has."""
    call, other = use.call, again.call
    if _is_bare(call):
        call = replace(call, arguments=other.arguments, malformed=other.malformed)
    call = replace(call, id=call.id or other.id)
    return replace(
        use, call=call, response=again.response if use.response is None else use.response
    )


def merged_uses(
    known: Sequence[ToolUse], later: Sequence[ToolUse], *, by_id: bool = True
) -> list[ToolUse]:
    """Return known calls, completed by later ones that repeat them, and then the new calls.

    Without `by_id`, ids are not compared.
    """
    calls = [use.call if by_id else replace(use.call, id="") for use in (*known, *later)]
    return joined(known, later, places_of_repeats(calls[: len(known)], calls[len(known) :]))


class KnownCalls:
    """Known calls, to find out whether a call is another report of one of them.

    It is if name and arguments are the same, or if it has no arguments and a known name. Calls of
    an `earlier` answer are only known by their ids.
    """

    def __init__(self, calls: Iterable[ToolCall], earlier: Iterable[ToolCall] = ()) -> None:
        self._calls = calls = list(calls)
        self._by_id = {call.id: call for call in (*earlier, *calls) if call.id}
        self._names = {call.name for call in calls}
        self._contents = {_content(call) for call in calls}

    def has(self, call: ToolCall) -> bool:
        """Return whether a call is known; a call with only an id may be a result."""
        same = self._by_id.get(call.id)
        if same is not None and call.name in (same.name, UNNAMED):
            return _is_bare(call) or _arguments(call) == _arguments(same)
        return call.name in self._names if _is_bare(call) else _content(call) in self._contents

    def has_all(self, calls: Sequence[ToolCall]) -> bool:
        """Return whether the calls of a list are known, and none is there more often."""
        ids = {call.id for call in calls if call.id}
        known = [call for call in self._calls if call.id not in ids]
        others = [call for call in calls if call.id not in self._by_id and not _is_bare(call)]
        return all(map(self.has, calls)) and None not in places_of_repeats(known, others)


def with_observed(reported: Sequence[ToolUse], observed: Sequence[ToolUse]) -> list[ToolUse]:
    """Return the calls that an agent reported, completed by observed ones, and other observed ones.

    A reported call with the id and name of an observed one is that call, whatever its arguments.
    Other ids are the agent's own and are not compared.
    """
    ids = {_identity(use.call) for use in observed}
    known = [
        replace(use.call, arguments={}, malformed=None)
        if _identity(use.call) in ids
        else replace(use.call, id="")
        for use in reported
    ]
    return joined(reported, observed, places_of_repeats(known, [use.call for use in observed]))


def joined(
    known: Sequence[ToolUse], later: Sequence[ToolUse], places: Sequence[int | None]
) -> list[ToolUse]:
    """Return known calls, completed by later ones, which have `places`, and then the new ones."""
    uses = list(known)
    for use, place in zip(later, places, strict=True):
        if place is None:
            uses.append(use)
        else:
            uses[place] = completed(uses[place], use)
    return uses


def with_ids(uses: Iterable[ToolUse]) -> tuple[ToolUse, ...]:
    """Return calls with new ids for those without one."""
    return tuple(
        use if use.call.id else replace(use, call=replace(use.call, id=f"call_{index}"))
        for index, use in enumerate(uses)
    )


def _identity(call: ToolCall) -> tuple[str, str]:
    return call.id, call.name


def _is_bare(call: ToolCall) -> bool:
    """Return whether a call has no arguments, which many reports leave out."""
    return not call.arguments and call.malformed is None


def _arguments(call: ToolCall) -> str:
    if call.malformed is not None:
        return call.malformed
    return canonical(call.arguments)


def _content(call: ToolCall) -> tuple[str, str]:
    return call.name, _arguments(call)


def _keys(call: ToolCall) -> dict[str, Hashable | None]:
    """Return what a call is compared by; None where it is not compared in this way."""
    has_id, is_bare, identity = bool(call.id), _is_bare(call), _identity(call)
    return {
        "all": (*identity, _arguments(call)) if has_id else None,
        "id": identity if has_id else None,
        "bare id": identity if has_id and is_bare else None,
        "content": _content(call),
        "name": call.name,
        "bare name": call.name if is_bare else None,
        "name without id": None if has_id else call.name,
        "bare name without id": call.name if is_bare and not has_id else None,
    }


_WAYS = (
    ("all", "all"),
    ("bare id", "id"),
    ("id", "bare id"),
    ("content", "content"),
    ("bare name without id", "name"),
    ("name", "bare name without id"),
    ("bare name", "name without id"),
    ("name without id", "bare name"),
)
"""The keys by which a known and a later call are compared, the most reliable first."""
