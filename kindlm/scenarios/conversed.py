"""A conversation of the agent with a simulated user, until it ends."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from kindlm.errors import Err
from kindlm.scenarios.persona import Message, Persona
from kindlm.scenarios.reply import Reply
from kindlm.scenarios.simulated_user import Asking, Exchange, Move, SimulatedUser
from kindlm.scenarios.stopping import SimulationError

Ending = Literal["goal", "limit", "stop"]

Lines = Sequence[str | Message | None]
"""What the user says, message by message; the model plays those that are None."""

Stop = Callable[[Reply], object]
"""Says of an answer whether the conversation ends with it."""

_MOST_TURNS = 100


@dataclass(frozen=True, slots=True)
class Conversed:
    """A conversation that a simulated user had.

    Attributes:
        messages: what the user said.
        replies: what the agent answered to each of these.
        ended: why it ended: "goal" if the goal was reached, "limit" if that was not so after as
            many messages as there may be, "stop" if the rule of the test ended it.
        reason: what the model that played the user said why the goal is reached, or is not; empty
            if it was not asked.
    """

    messages: tuple[str, ...]
    replies: tuple[Reply, ...]
    ended: Ending
    reason: str

    def __bool__(self) -> bool:
        """Refuse: that there was a conversation says nothing of how it ended."""
        raise TypeError("what came of a conversation is neither true nor false: .goal_reached is")

    @property
    def goal_reached(self) -> bool:
        """Whether the user got what they wanted."""
        return self.ended == "goal"

    @property
    def last(self) -> Reply:
        """The last answer of the agent."""
        return self.replies[-1]


class Talk(Protocol):
    """The conversation of a trial, of which this one is a part."""

    @property
    def said(self) -> Sequence[Exchange]:
        """What was said so far."""
        ...

    def send(self, message: str | Message) -> Awaitable[Reply]:
        """Send a message of the user."""
        ...


@dataclass(frozen=True, slots=True)
class _Rules:
    """When a conversation ends, and what its user says whatever the model would say."""

    least: int
    most: int
    script: Lines
    stop: Stop | None

    def __post_init__(self) -> None:
        """Refuse what can't be meant."""
        if not 1 <= self.least <= self.most <= _MOST_TURNS:
            raise ValueError(
                f"turns must be the least and the most messages, from 1 to {_MOST_TURNS}, but are"
                f" ({self.least}, {self.most})"
            )
        if isinstance(self.script, str) or not all(
            each is None or isinstance(each, str | Message) for each in self.script
        ):
            raise TypeError("script must be a list of messages, with None where the model speaks")
        if len(self.script) > self.most:
            raise ValueError(
                f"script has {len(self.script)} messages, and turns allows {self.most}"
            )

    def may_end(self, turn: int) -> bool:
        """Tell whether the goal may end the conversation before a message, counted from 0."""
        return turn >= max(self.least, len(self.script))

    def stops(self, reply: Reply) -> bool:
        """Tell whether the rule of the test ends the conversation with an answer."""
        found = None if self.stop is None else self.stop(reply)
        if inspect.isawaitable(found):
            if inspect.iscoroutine(found):
                found.close()
            raise TypeError("stop must say at once whether the conversation ends: it is `async`")
        return bool(found)

    def scripted(self, turn: int) -> str | None:
        """Return what is said whatever the model would say."""
        each = self.script[turn] if turn < len(self.script) else None
        return each.text if isinstance(each, Message) else each


async def converse(
    asking: Asking,
    talk: Talk,
    persona: Persona,
    *,
    goal: str,
    turns: tuple[int, int],
    script: Lines,
    stop: Stop | None,
) -> Conversed:
    """Let a simulated user talk to the agent; see `Trial.converse`."""
    if not goal.strip():
        raise ValueError('converse needs a goal, such as goal="a refund is promised"')
    rules = _Rules(*turns, tuple(script) if isinstance(script, list) else script, stop)
    user = SimulatedUser(persona, goal)
    messages: list[str] = []
    replies: list[Reply] = []

    def ended(why: Ending, reason: str = "") -> Conversed:
        return Conversed(tuple(messages), tuple(replies), why, reason)

    for turn in range(rules.most):
        text = rules.scripted(turn)
        if text is None:
            may_end = rules.may_end(turn)
            move = await _move(user, asking, talk, may_end=may_end)
            if move.done and may_end:
                return ended("goal", move.reason)
            text = move.message
        messages.append(text)
        replies.append(await talk.send(text))
        if rules.stops(replies[-1]):
            return ended("stop")
    # Whether the last answer brought what the user wanted is still to be asked.
    move = await _move(user, asking, talk, may_end=True, is_over=True)
    return ended("goal" if move.done else "limit", move.reason)


async def _move(
    user: SimulatedUser, asking: Asking, talk: Talk, *, may_end: bool, is_over: bool = False
) -> Move:
    move = await user.next(asking, talk.said, may_end=may_end, is_over=is_over)
    if isinstance(move, Err):
        raise SimulationError(move.error)
    return move.value
