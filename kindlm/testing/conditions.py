"""Whether the conditions of a rule hold for a conversation."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Self

from kindlm.testing.templates import MISSING, as_text, look_up

if TYPE_CHECKING:
    from kindlm.testing.conversation import Conversation
    from kindlm.testing.script import TextTest, ValueTest, When


def json_equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same: numbers by value, booleans are no numbers."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(json_equal(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(json_equal, left, right))
    return bool(left == right)


@dataclass(frozen=True, slots=True)
class Situation:
    """A conversation with what conditions ask of it, worked out once for all rules.

    Attributes:
        conversation: The conversation itself.
        called: Names of all tools that were called.
        called_this_turn: Names of those called after the last user message.
        offered: Names of the tools on offer.
        results: The latest result of each tool.
        said: All user messages.
    """

    conversation: Conversation
    called: frozenset[str]
    called_this_turn: frozenset[str]
    offered: frozenset[str]
    results: dict[str, Any]
    said: str

    @classmethod
    def of(cls, conversation: Conversation) -> Self:
        """The situation of a conversation."""
        turns = conversation.turns
        results = {call.name: call.result for call in conversation.calls}
        return cls(
            conversation=conversation,
            called=frozenset(results),
            called_this_turn=frozenset(call.name for call in turns[-1].calls)
            if turns
            else frozenset(),
            offered=frozenset(conversation.offered),
            results=results,
            said="\n".join(turn.user for turn in turns),
        )


def captures_of(when: When, situation: Situation) -> dict[str, str] | None:
    """The captures of a rule's conditions if they all hold, else None.

    Raises:
        ScriptError: when a pattern takes too long.
    """
    if not _request_matches(when, situation.conversation):
        return None
    if not _tools_match(when, situation):
        return None
    return _text_captures(when, situation)


def _request_matches(when: When, conversation: Conversation) -> bool:
    if when.asks != conversation.asks:
        return False
    if when.wire is not None and when.wire != conversation.wire:
        return False
    if when.models and not any(fnmatchcase(conversation.model, name) for name in when.models):
        return False
    if when.structured is not None and when.structured != conversation.structured:
        return False
    return when.user_turns is None or when.user_turns == len(conversation.turns)


def _tools_match(when: When, situation: Situation) -> bool:
    return (
        situation.called_this_turn.issuperset(when.called_this_turn)
        and situation.called_this_turn.isdisjoint(when.not_called_this_turn)
        and situation.called.issuperset(when.called)
        and situation.called.isdisjoint(when.not_called)
        and situation.offered.issuperset(when.offered)
        and situation.offered.isdisjoint(when.not_offered)
        and all(
            _value_matches(test, look_up(path, situation.results)) for path, test in when.results
        )
    )


def _value_matches(test: ValueTest, value: Any) -> bool:
    if test.exists is not None and test.exists != (value is not MISSING):
        return False
    if test.equals and not (value is not MISSING and json_equal(test.equals[0], value)):
        return False
    if test.contains is not None and (
        value is MISSING or test.contains.casefold() not in as_text(value).casefold()
    ):
        return False
    return _within(test, value)


def _within(test: ValueTest, value: Any) -> bool:
    if test.minimum is None and test.maximum is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    above = test.minimum is None or value >= test.minimum
    return above and (test.maximum is None or value <= test.maximum)


def _text_captures(when: When, situation: Situation) -> dict[str, str] | None:
    captures: dict[str, str] = {}
    tests: tuple[tuple[TextTest | None, str], ...] = (
        (when.system, situation.conversation.system),
        (when.said, situation.said),
        (when.user, situation.conversation.user),
    )
    for test, text in tests:
        if test is None:
            continue
        found = test.captures(text)
        if found is None:
            return None
        captures |= found
    return captures
