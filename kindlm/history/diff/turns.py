"""Which turn of a conversation each of its calls belongs to.

A turn begins with a message of the user. The first one is that of the test, or comes with the first
call where a scenario says it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["USERS", "CallOfTurn", "turns_of"]

USERS = """
CASE WHEN c.try = 1 AND c.messages <> '[]' THEN
  (SELECT count(*) FROM json_each(c.messages) m WHERE json_extract(m.value, '$.role') = 'user')
ELSE 0 END
"""
"""How many messages of the user a call `c` said, in SQL. What is tried again is not said again."""


class CallOfTurn(NamedTuple):
    """A call of the target: its number, and how many messages of the user it said."""

    number: int
    users: int


def turns_of(calls: Iterable[CallOfTurn]) -> dict[int, int]:
    """Return the turn of each call, from 1, by its number."""
    turns: dict[int, int] = {}
    turn = 0
    for call in calls:
        turn = max(1, turn + call.users) if turns or call.users else 1
        turns[call.number] = turn
    return turns
