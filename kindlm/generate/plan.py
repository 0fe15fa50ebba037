"""What is asked of a generation, what is planned, and what came of it: values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.suggestions import hint_for
from kindlm.suite import AgentTarget

TOOL_USE = "tool-use"
"""The category of scenarios that need a tool."""

CATEGORIES: Mapping[str, str] = {
    "happy": "what the agent is for, asked in an ordinary way",
    "edge": "unusual, incomplete, contradictory or ambiguous requests, and values at a limit",
    "adversarial": "attempts to change its instructions, to make it play another part, or to lead"
    " it away from its subject",
    "guardrail": "personal data of others, invented facts, unsafe advice, and promises that it may"
    " not make",
    "multi-turn": "conversations of at least two messages, of which later ones build on earlier"
    " ones",
    TOOL_USE: "requests that need a tool: the right one, and what becomes of its failures",
    "tone": "how it sounds towards users who are angry, sad, hurried or rude",
}
"""The categories in their order, each with what it is about."""

_FEWEST = 2
"""Scenarios that are asked for in each category: what comes unfit is made up for by the rest."""


def parse_categories(text: str | None) -> Result[tuple[str, ...]]:
    """Return the categories of a list such as `edge,tone`, in our order; all if there is none."""
    if text is None:
        return Ok(tuple(CATEGORIES))
    names = [name.strip().lower().replace("_", "-") for name in text.split(",") if name.strip()]
    unknown = next((name for name in names if name not in CATEGORIES), None)
    if unknown is not None or not names:
        known = f"Known categories: {', '.join(CATEGORIES)}"
        hint = known if unknown is None else hint_for(unknown, CATEGORIES, "Known categories")
        found = "No category is named" if unknown is None else f'Unknown category "{unknown}"'
        return Err(KindlmError(ErrorCode.CONFIG_VALIDATION_ERROR, f"{found}.", hint))
    return Ok(tuple(name for name in CATEGORIES if name in names))


def shares(count: int, categories: Sequence[str]) -> dict[str, int]:
    """Return how many of `count` scenarios each category gets: one after the other, in turn."""
    whole, left = divmod(count, len(categories))
    return {name: whole + (at < left) for at, name in enumerate(categories)}


def wanted(count: int, categories: Sequence[str]) -> dict[str, int]:
    """Return how many scenarios are asked for in each category: its share, two at least.

    Categories that get none are not asked for.
    """
    dealt = shares(count, categories)
    return {name: max(_FEWEST, share) for name, share in dealt.items() if share}


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


Form = Literal["python", "yaml"]


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be written.

    `agent` is asked what it is for; `written_agent` is its URL as the files name it, if the
    configuration does not. Files are written into `folder`, whose paths are told from `root`.
    """

    count: int
    categories: tuple[str, ...]
    form: Form
    folder: Path
    root: Path
    description: str | None = None
    system_prompt: str | None = None
    agent: AgentTarget | None = None
    written_agent: str | None = None
    seed: int | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written, and the scenario in it."""

    path: Path
    scenario: PlannedScenario


@dataclass(frozen=True, slots=True)
class Generated:
    """What was written, and why what was planned besides was not. `profile` is a file, too."""

    profile: Path
    files: tuple[WrittenFile, ...]
    left_out: tuple[str, ...]
