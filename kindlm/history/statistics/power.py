"""How likely a comparison is to confirm a drop: computed before anything is run or compared."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import sqrt

from kindlm.history.statistics.pass_rates import (
    Design,
    Looks,
    binomial,
    crossings,
    expected_by_chance,
    worst_chance,
)

__all__ = ["power", "power_from_here"]

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
    old, new = binomial(design.before, before), binomial(design.after, after)
    limit = _limit(design, level, tuple(others))
    return sum(
        crossings(limit, design, [[x * y for y in new] for x in old], (before, after)).values()
    )


def power_from_here(
    looks: Looks, rates: tuple[float, float], level: float, others: Sequence[Looks]
) -> float:
    """Return how often repeats that are still to be added confirm a drop, as things stand.

    `rates` are the pass rates of both sides; what came out until now is given.
    """
    old, new = (looks.grown or (looks.before,))[-1], looks.after[-1]
    shares = [[0.0] * (new.n + 1) for _ in range(old.n + 1)]
    shares[old.passed][new.passed] = 1.0
    limit = _limit(looks.design, level, tuple(others))
    added = new.n - looks.after[0].n
    return sum(crossings(limit, looks.design, shares, rates, added).values())


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
