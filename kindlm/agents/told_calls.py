"""Which calls are the same where an agent reports its calls in several places, or piece by piece.

Many agents report the same calls twice, as steps and as OpenAI has them. Others report some calls
here and others there: to read one place alone would miss the call that a test forbids. Still others
report calls and tool results one after another, and a result has to find its call.

A call without an id has an empty one while calls are compared: an id that kindlm made up says
nothing of what is the same.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from kindlm.agents.reply_parts import AGENT_RULE, MAX_CALLS, refuse_more
from kindlm.matching import canonical
from kindlm.transcript import UNNAMED, ToolCall, ToolUse

_Key: TypeAlias = Callable[[ToolCall], Hashable | None]
"""What calls are compared by; None of a call that is not compared by it."""


def told_before(known: Sequence[ToolCall], later: Sequence[ToolCall]) -> list[int | None]:
    """Return for each later call which known one it tells again: a position, None if it is new.

    They are the same if id and name are, and the arguments as far as both have some; else if name
    and arguments are; else if the name is and one of them has no arguments, unless both have ids.
    Each known call is told again once, but for calls that add nothing: without arguments, and with
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
    """Tell whether two calls are the same by id and name, and by what arguments both have."""
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
    uses = list(known)
    calls = [use.call if by_id else replace(use.call, id="") for use in (*known, *later)]
    places = told_before(calls[: len(known)], calls[len(known) :])
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
    """Tell whether a call has no arguments; many tellings leave them out."""
    return not call.arguments and call.malformed is None


def _arguments(call: ToolCall) -> str:
    """Return the arguments as a text that is the same for the same JSON, in which 1.0 is 1."""
    if call.malformed is not None:
        return call.malformed
    return canonical(call.arguments)


def _only(of: Callable[[ToolCall], bool], key: _Key) -> _Key:
    return lambda call: key(call) if of(call) else None


def _has_id(call: ToolCall) -> bool:
    return bool(call.id)


def _has_none(call: ToolCall) -> bool:
    return not call.id


def _name(call: ToolCall) -> str:
    return call.name


def _said(call: ToolCall) -> tuple[str, str]:
    return call.name, _arguments(call)


_BY_ID = _only(_has_id, _identity)
_BY_ID_BARE = _only(_is_bare, _BY_ID)
_BY_ALL = _only(_has_id, lambda call: (*_identity(call), _arguments(call)))
_BARE = _only(_is_bare, _name)
_WITHOUT_ID = _only(_has_none, _name)
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


@dataclass(slots=True)
class Made:
    """A tool call, and its answer once there is one."""

    call: ToolCall
    response: Any = None
    is_answered: bool = False

    def answer(self, response: Any) -> None:
        """Take the answer."""
        self.response, self.is_answered = response, True


class Calls:
    """Calls in their order, found by their ids, or in order while they wait for an answer."""

    def __init__(self) -> None:
        self.made: list[Made] = []
        self._by_id: dict[str, Made] = {}
        self._waiting: deque[Made] = deque()
        self._waiting_by_name: defaultdict[str, deque[Made]] = defaultdict(deque)

    @property
    def uses(self) -> tuple[ToolUse, ...]:
        """All calls with their answers, which the agent gave itself."""
        return tuple(ToolUse(made.call, made.response, AGENT_RULE) for made in self.made)

    def add(self, name: str, call_id: str | None, arguments: Any) -> Made:
        """Take a call; one without an id gets one that nothing refers to.

        Raises:
            UnreadableReply: there are more than `MAX_CALLS`.
        """
        refuse_more(len(self.made) + 1, MAX_CALLS, "tool calls")
        made = Made(ToolCall.told(call_id or f"tool-{len(self.made)}", name, arguments))
        self.made.append(made)
        if call_id is not None and self._is_free(call_id):
            self._by_id[call_id] = made
        self._waiting.append(made)
        self._waiting_by_name[name].append(made)
        return made

    def by_id(self, call_id: str) -> Made | None:
        """Return the call with an id."""
        return self._by_id.get(call_id)

    def find(self, call_id: str | None, name: str | None) -> Made | None:
        """Return the call that an answer belongs to.

        That is the one with its id, else the first unanswered one with its name, else, if it
        names none, the first unanswered one.
        """
        if call_id in self._by_id:
            return self._by_id[call_id]
        waiting = self._waiting if name is None else self._waiting_by_name[name]
        while waiting and waiting[0].is_answered:
            waiting.popleft()
        return waiting[0] if waiting else None

    def _is_free(self, call_id: str) -> bool:
        """Tell whether an id is new, or of a call that is done: some agents use ids again."""
        earlier = self._by_id.get(call_id)
        return earlier is None or earlier.is_answered


@dataclass(slots=True)
class PiecedCall:
    """A tool call in the making; `written` are its arguments as far as they came in pieces."""

    name: str = UNNAMED
    written: list[str] = field(default_factory=list)
    arguments: Any = None
    response: Any = None

    def use(self, call_id: str) -> ToolUse:
        """Return the call, whole."""
        arguments = self.arguments
        if arguments is None and self.written:
            arguments = "".join(self.written)
        return ToolUse(ToolCall.told(call_id, self.name, arguments), self.response, AGENT_RULE)


def lost_answers(lost: int) -> tuple[str, ...]:
    """Return the warning of answers that belong to no call, if there are any."""
    return (f"results of tools that belong to no call: {lost}",) if lost else ()
