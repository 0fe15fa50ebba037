"""How long an answer of a model may be, and how many scenarios are asked for in one.

A provider refuses a limit that is higher than its model's own, and cuts off what is longer than a
limit that is too low. What a reasoning model thinks is not counted here: its client sees to that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

__all__ = ["PROFILE_TOKENS", "in_calls", "plan_tokens"]

PROFILE_TOKENS = 2_000
"""Tokens that a profile may have."""

_PLAN = 1_000
_SCENARIO = 500
"""Generous: a scenario of two messages has about 300."""

_MOST = 16_000
"""One answer is no longer, whatever a model could write: the last scenarios of long lists are
poor, and an answer that is lost has cost less."""

_SHORT = re.compile(
    r"(?<![a-z0-9])(?:gpt-3\.5|gpt-4(?![o.\d])|gpt-4o-2024-05-13"
    r"|claude-(?:3-(?:opus|sonnet|haiku)|2|instant))"
)
"""Models whose answers have at most 4,096 tokens."""

_LONG = re.compile(
    r"(?<![a-z0-9])(?:gpt-4o|gpt-4\.|gpt-[5-9]|o[1-9](?!\d)|claude-3-7"
    r"|claude-(?:opus|sonnet|haiku)-)"
)
"""Models whose answers may have more than `_MOST`."""

_SHORT_MOST = 4_096
_USUAL_MOST = 8_192


def plan_tokens(scenarios: int) -> int:
    """Return how many tokens a plan with so many scenarios may have."""
    return _PLAN + _SCENARIO * scenarios


def in_calls(counts: Mapping[str, int], model: str) -> Iterator[dict[str, int]]:
    """Yield how many scenarios of each category are asked for in each call.

    That is one call, unless their plan is longer than an answer of the model may be.
    """
    room = (_longest(model) - _PLAN) // _SCENARIO
    each = [category for category, count in counts.items() for _ in range(count)]
    for start in range(0, len(each), room):
        yield dict(Counter(each[start : start + room]))


def _longest(model: str) -> int:
    name = model.lower()
    if _SHORT.search(name):
        return _SHORT_MOST
    return _MOST if _LONG.search(name) else _USUAL_MOST
