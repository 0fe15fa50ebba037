"""Reads a plan that a model made: what is unfit is left out, and the rest is kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kindlm.generate.literals import one_line, spoken
from kindlm.generate.plan import TOOL_USE, PlannedScenario, PlannedTurn, PlannedUser
from kindlm.model_answers import object_in, objects_member, text_member, texts_member
from kindlm.wording import shown

_LONGEST_TITLE = 100
_LONGEST_RULE = 500
_LONGEST_TONE = 60
_LONGEST_MESSAGE = 4_000
_MOST_TURNS = 8
_MOST_RULES = 5


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The scenarios of a plan that can be written, and why others can not."""

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
    before: ReadPlan = ReadPlan(),
) -> ReadPlan:
    """Read a model's answer.

    Args:
        text: the answer.
        categories: those that were asked for.
        tools: those that the agent has.
        before: what was planned already; what is read is added to it.

    Raises:
        ValueError: it is no plan at all; says why.
    """
    scenarios, left_out = list(before.scenarios), list(before.left_out)
    items = object_in(text).get("scenarios")
    if not isinstance(items, list):
        raise ValueError("its scenarios is no list")  # noqa: TRY004 - a wrong answer
    for item in items:
        if not isinstance(item, dict):
            left_out.append(f"{shown(item, 60)}: it is no object")
            continue
        try:
            scenario = _scenario(item, categories, tools)
        except ValueError as error:
            left_out.append(f"{shown(str(item.get('title', '')), 60)}: {error}")
            continue
        if any(each.title == scenario.title for each in scenarios):
            left_out.append(f"{shown(scenario.title, 60)}: it is there twice")
        else:
            scenarios.append(scenario)
    return ReadPlan(tuple(scenarios), tuple(left_out))


def _scenario(
    item: Mapping[str, Any], categories: Collection[str], tools: Collection[str]
) -> PlannedScenario:
    category = text_member(item, "category").strip().lower().replace("_", "-")
    if category not in categories:
        raise ValueError(f"this question was for none of category {shown(category, 60)}")
    title = one_line(text_member(item, "title"), _LONGEST_TITLE)
    if not title:
        raise ValueError("its title is empty")
    turns = tuple(_turn(each, tools) for each in objects_member(item, "turns"))
    if not 1 <= len(turns) <= _MOST_TURNS:
        raise ValueError(f"it has {len(turns)} messages")
    if category == "multi-turn" and len(turns) == 1:
        raise ValueError("it has one message only")
    if category == TOOL_USE and not any(turn.tools for turn in turns):
        raise ValueError("it needs no tool")
    if not any(turn.is_checked for turn in turns):
        raise ValueError("it says nothing about the answers")
    why = one_line(text_member(item, "why"), _LONGEST_RULE)
    return PlannedScenario(category, title, why or title, _user(item.get("user")), turns)


def _user(item: Any) -> PlannedUser:
    if not isinstance(item, dict):
        raise ValueError("its user is no object")  # noqa: TRY004 - a wrong answer
    role, tone, backstory = (
        one_line(text_member(item, name), _LONGEST_RULE) for name in ("role", "tone", "backstory")
    )
    return PlannedUser(role or "user", tone or None, backstory or None)


def _turn(item: Mapping[str, Any], tools: Collection[str]) -> PlannedTurn:
    says = spoken(text_member(item, "says"), _LONGEST_MESSAGE)
    if not says:
        raise ValueError("a message of it is empty")
    needed = tuple(dict.fromkeys(name.strip() for name in texts_member(item, "tools")))
    unknown = next((name for name in needed if name not in tools), None)
    if unknown is not None:
        raise ValueError(f"the agent has no tool {shown(unknown, 60)}")
    return PlannedTurn(
        says,
        _rules(item, "right"),
        _rules(item, "wrong"),
        one_line(text_member(item, "tone"), _LONGEST_TONE) or None,
        needed,
    )


def _rules(item: Mapping[str, Any], name: str) -> tuple[str, ...]:
    rules = (one_line(text, _LONGEST_RULE) for text in texts_member(item, name)[:_MOST_RULES])
    return tuple(dict.fromkeys(rule for rule in rules if rule))
