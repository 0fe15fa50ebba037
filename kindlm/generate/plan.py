"""What is planned: values, and how a few scenarios are chosen from all that were planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["PlannedScenario", "PlannedTurn", "PlannedUser", "in_turn"]


@dataclass(frozen=True, slots=True)
class PlannedUser:
    """Who talks to the agent."""

    role: str
    tone: str | None = None
    backstory: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """A message, and what is right and wrong about the answer to it.

    `right` and `wrong` are sentences for a judge; `tools` are those that the answer needs.
    """

    says: str
    right: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    tone: str | None = None
    tools: tuple[str, ...] = ()

    @property
    def is_checked(self) -> bool:
        """Whether anything is said of the answer."""
        return bool(self.right or self.wrong or self.tone or self.tools)


@dataclass(frozen=True, slots=True)
class PlannedScenario:
    """A conversation to have; `why` says what it is good for."""

    category: str
    title: str
    why: str
    user: PlannedUser
    turns: tuple[PlannedTurn, ...]


def in_turn(
    scenarios: Sequence[PlannedScenario], categories: Sequence[str], count: int
) -> list[PlannedScenario]:
    """Return `count` scenarios, taken from each category in turn, in the order of categories."""
    taken = list(_dealt(scenarios, categories))[:count]
    return sorted(taken, key=lambda each: categories.index(each.category))


def _dealt(
    scenarios: Sequence[PlannedScenario], categories: Sequence[str]
) -> Iterator[PlannedScenario]:
    piles = [[each for each in scenarios if each.category == name] for name in categories]
    for row in range(max(map(len, piles), default=0)):
        yield from (pile[row] for pile in piles if row < len(pile))
