"""The request of a generation, the plan of a model, and the result.

`read_plan` reads the plan of a model: it leaves out what is unfit, and keeps the rest.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Literal

from kindlm.checks.judging import fit
from kindlm.dataclass import dataclass
from kindlm.errors import Err, Ok, Result, misuse
from kindlm.model_answers import object_in
from kindlm.suggestions import hint_for
from kindlm.suite import AgentTarget
from kindlm.wording import cut, shown

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
    """Return the categories of a list such as `edge,tone`, in our order; all without a list."""
    if text is None:
        return Ok(tuple(CATEGORIES))
    names = [name.strip().lower().replace("_", "-") for name in text.split(",") if name.strip()]
    unknown = next((name for name in names if name not in CATEGORIES), None)
    if unknown is not None or not names:
        known = f"Known categories: {', '.join(CATEGORIES)}"
        hint = known if unknown is None else hint_for(unknown, CATEGORIES, "Known categories")
        found = "No category is named" if unknown is None else f'Unknown category "{unknown}"'
        return Err(misuse(f"{found}.", hint))
    return Ok(tuple(name for name in CATEGORIES if name in names))


def wanted(count: int, categories: Sequence[str]) -> dict[str, int]:
    """Return how many scenarios are asked for in each category: its share, two at least.

    The `count` scenarios are dealt to the categories in turn. Those that get no scenario are left
    out.
    """
    whole, left = divmod(count, len(categories))
    dealt = {name: whole + (at < left) for at, name in enumerate(categories)}
    return {name: max(_FEWEST, share) for name, share in dealt.items() if share}


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
    """A conversation to have; `why` says what it is good for.

    `user` are the traits of who talks to the agent, by the fields of a `Persona`.
    """

    category: str
    title: str
    why: str
    user: Mapping[str, str]
    turns: tuple[PlannedTurn, ...]


def in_turn(
    scenarios: Sequence[PlannedScenario], categories: Sequence[str], count: int
) -> list[PlannedScenario]:
    """Return `count` scenarios, taken from each category in turn, in the order of categories."""
    piles = [[each for each in scenarios if each.category == name] for name in categories]
    dealt = (scenario for row in zip_longest(*piles) for scenario in row if scenario is not None)
    return sorted(islice(dealt, count), key=lambda each: categories.index(each.category))


Form = Literal["python", "yaml"]


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be written.

    `agent` is asked what it is for; `written_agent` is its URL as the files name it, if the
    configuration does not. Files are written into `folder`, and named relative to `root`.
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
class Generated:
    """What was written, and why what was planned besides was not. `profile` is a file, too."""

    profile: Path
    files: Mapping[Path, PlannedScenario]
    left_out: tuple[str, ...]


SCENARIO: Mapping[str, Any] = {
    "category": "its category",
    "title": "a few words",
    "why": "what it would find",
    "user": {"role": "", "tone": "", "backstory": ""},
    "turns": [{"says": "a message", "right": [""], "wrong": [""], "tone": "", "tools": [""]}],
}
"""A scenario as a model answers it."""

_LONGEST_TITLE = 100
_LONGEST_RULE = 500
_LONGEST_TONE = 60
_LONGEST_MESSAGE = 4_000
_MOST_TURNS = 8
_MOST_RULES = 5


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The scenarios of a plan that can be written, and why others cannot."""

    scenarios: tuple[PlannedScenario, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def titles(self) -> list[str]:
        """What the scenarios are called."""
        return [scenario.title for scenario in self.scenarios]


def read_plan(
    text: str,
    categories: Collection[str],
    tools: Collection[str],
    before: ReadPlan = ReadPlan(),  # noqa: B008 - a value
) -> ReadPlan:
    """Read a model's answer.

    `categories` were asked for, the agent has the `tools`. What is read is added to what was
    planned `before`.

    Raises:
        ValueError: it is no plan at all; says why.
    """
    scenarios, left_out = list(before.scenarios), list(before.left_out)
    items = object_in(text).get("scenarios")
    if not isinstance(items, list):
        raise ValueError("its scenarios is not a list")  # noqa: TRY004 - a wrong answer
    for item in items:
        if not isinstance(item, dict):
            left_out.append(f"{shown(item, 60)}: it is not an object")
            continue
        try:
            scenario = _scenario(item, categories, tools)
        except ValueError as error:
            left_out.append(f"{shown(str(item.get('title', '')), 60)}: {error}")
            continue
        if any(each.title == scenario.title for each in scenarios):
            left_out.append(f"{shown(scenario.title, 60)}: it occurs twice")
        else:
            scenarios.append(scenario)
    return ReadPlan(tuple(scenarios), tuple(left_out))


def _scenario(
    item: Mapping[str, Any], categories: Collection[str], tools: Collection[str]
) -> PlannedScenario:
    fit(SCENARIO, item)
    category = item["category"].strip().lower().replace("_", "-")
    if category not in categories:
        raise ValueError(f"this question was for none of category {shown(category, 60)}")
    title = one_line(item["title"], _LONGEST_TITLE)
    if not title:
        raise ValueError("its title is empty")
    turns = tuple(_turn(each, tools) for each in item["turns"])
    if not 1 <= len(turns) <= _MOST_TURNS:
        raise ValueError(f"it has {len(turns)} messages")
    if category == "multi-turn" and len(turns) == 1:
        raise ValueError("it has one message only")
    if category == TOOL_USE and not any(turn.tools for turn in turns):
        raise ValueError("it needs no tool")
    if not any(turn.is_checked for turn in turns):
        raise ValueError("it says nothing about the answers")
    why = one_line(item["why"], _LONGEST_RULE)
    traits = {name: one_line(item["user"][name], _LONGEST_RULE) for name in SCENARIO["user"]}
    traits["role"] = traits["role"] or "user"
    user = {name: said for name, said in traits.items() if said}
    return PlannedScenario(category, title, why or title, user, turns)


def _turn(item: Mapping[str, Any], tools: Collection[str]) -> PlannedTurn:
    says = spoken(item["says"], _LONGEST_MESSAGE)
    if not says:
        raise ValueError("a message of it is empty")
    needed = tuple(dict.fromkeys(name.strip() for name in item["tools"]))
    unknown = next((name for name in needed if name not in tools), None)
    if unknown is not None:
        raise ValueError(f"the agent has no tool {shown(unknown, 60)}")
    return PlannedTurn(
        says,
        _rules(item, "right"),
        _rules(item, "wrong"),
        one_line(item["tone"], _LONGEST_TONE) or None,
        needed,
    )


def _rules(item: Mapping[str, Any], name: str) -> tuple[str, ...]:
    rules = (one_line(text, _LONGEST_RULE) for text in item[name][:_MOST_RULES])
    return tuple(dict.fromkeys(rule for rule in rules if rule))


_SPACES = re.compile(r"\s+")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_LONGEST_NAME = 100


def one_line(text: str, limit: int) -> str:
    """Return a text in one line of at most `limit` characters, with nothing that is not seen."""
    beginning = text[: 4 * limit]
    seen = "".join(char if char.isprintable() else " " for char in beginning)
    return cut(_SPACES.sub(" ", seen).strip(), limit)


def spoken(text: str, limit: int) -> str:
    """Return what a user says, as it is but for what no file and no agent can hold."""
    return cut(_UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text[: limit + 1]), limit).strip()


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a tool: short, with nothing that is not seen."""
    return 0 < len(text) <= _LONGEST_NAME and text.isprintable() and text == text.strip()
