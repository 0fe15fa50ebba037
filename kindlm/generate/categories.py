"""What scenarios are about: the categories, and how many of each there are to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.suggestions import hint_for

__all__ = ["CATEGORIES", "TOOL_USE", "parse_categories", "shares", "wanted"]

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
