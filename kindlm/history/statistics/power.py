"""How likely a comparison is to confirm a drop: computed before anything is run or compared."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import comb, sqrt

from kindlm.history.statistics.pass_rates import (
    Design,
    Looks,
    chance_of_drop,
    expected_by_chance,
    worst_chance,
)

__all__ = ["power"]

_SMALLEST_P = 2.0**-40
"""No level and number of tests asks for less."""

_PRECISION = 1.002
"""How far the limit that is found may lie below the exact one."""


def power(
    design: Design, before: float, after: float, level: float, others: Sequence[Looks] = ()
) -> float:
    """Return how often `confirmed_drops` confirms that one test fell between two pass rates.

    `others` are the tests that are compared with it, as they came out or are expected to: they do
    not change. Where repeats may be added, it is the chance that any look confirms the drop.
    Computed over all outcomes, and a lower bound: tests that drop together help each other.
    """
    limit = _limit(design, level, tuple(others))
    return sum(
        chance * chance_of_drop(limit, passed, design, after)
        for passed, chance in enumerate(_binomial(design.before, before))
        if chance
    )


@lru_cache(maxsize=256)
def _limit(design: Design, level: float, others: tuple[Looks, ...]) -> float:
    """Return the largest of Fisher's p-values that is believed of a test beside the others."""

    def is_believed(p: float) -> bool:
        own = worst_chance(p, design)
        return own <= level and own + expected_by_chance(p, others) <= level

    low, high = _SMALLEST_P, 1.0
    if is_believed(high):
        return high
    while high / low > _PRECISION:
        middle = sqrt(low * high)
        low, high = (middle, high) if is_believed(middle) else (low, middle)
    return low


@lru_cache(maxsize=1024)
def _binomial(n: int, rate: float) -> tuple[float, ...]:
    return tuple(comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(n + 1))
