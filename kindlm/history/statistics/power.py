"""How often a comparison confirms a drop, and how many repeats that takes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import ceil, comb, sqrt
from statistics import NormalDist, fmean, variance

from kindlm.history.statistics.pass_rates import (
    Design,
    Looks,
    binomial,
    crossings,
    expected_by_chance,
    worst_chance,
)
from kindlm.history.statistics.tables import Counts, fisher_mid_p

__all__ = ["power", "power_from_here", "repeats_needed", "score_repeats_needed"]

_SMALLEST_P = 2.0**-40
"""No level and number of tests asks for less."""

_PRECISION = 1.002
"""How far the limit that is found may lie below the exact one."""

_MOST_EXACT = 60
"""Up to so many repeats on a side, the power is computed; above, the normal formula is close."""


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


def _rough_power(n: int, before: float, after: float, level: float) -> float:
    """Return about how often a drop between two pass rates is confirmed with n repeats a side.

    Quicker than `power`, which is exact: it goes by the mid-p of Fisher's test, which is close to
    the p-value of `pass_rate_drop`. Computed over all outcomes.
    """
    at_most = list(accumulate(binomial(n, after), initial=0.0))
    limits = _limits(n, level)
    return sum(
        chance * at_most[limit + 1]
        for chance, limit in zip(binomial(n, before), limits, strict=True)
    )


@lru_cache(maxsize=4096)
def _limits(n: int, level: float) -> tuple[int, ...]:
    """Return, for each number of passes before, the most passes after that show a drop (or -1)."""
    limits = []
    limit = -1
    for passed in range(n + 1):
        before = Counts(passed, n)
        while limit < n and fisher_mid_p(before, Counts(limit + 1, n)) <= level:
            limit += 1
        limits.append(limit)
    return tuple(limits)


@lru_cache(maxsize=16384)
def repeats_needed(before: float, after: float, level: float, wanted: float = 0.8) -> int | None:
    """Return the repeats per side that show a drop between two pass rates, None without a drop.

    The smallest number with about the wanted power; from 60 on by the normal formula,
    n = (z(1 - a) √(2 p (1 - p)) + z(w) √(p1 (1 - p1) + p2 (1 - p2)))² / (p1 - p2)², p the mean
    rate: J. L. Fleiss, "Statistical Methods for Rates and Proportions" (1981), section 3.2.
    """
    if before <= after:
        return None
    normal, mean = NormalDist(), (before + after) / 2
    spread = before * (1 - before) + after * (1 - after)
    root = normal.inv_cdf(1 - level) * sqrt(2 * mean * (1 - mean))
    root += normal.inv_cdf(wanted) * sqrt(spread)
    rough = ceil((root / (before - after)) ** 2)
    for n in range(max(2, rough // 2), _MOST_EXACT + 1):
        if _rough_power(n, before, after, level) >= wanted:
            return n
    return max(rough, _MOST_EXACT + 1)


def score_repeats_needed(
    before: Sequence[float], after: Sequence[float], level: float, wanted: float = 0.8
) -> int | None:
    """Return the repeats per side that show a drop of mean scores; None without one, or spread.

    n = (z(1 - a) + z(w))² (s1² + s2²) / (m1 - m2)², the normal formula for two means, but never
    fewer than the rank-sum test needs to get to the level at all. Of one score on a side the
    spread is not known.
    """
    if min(len(before), len(after)) < 2 or fmean(before) <= fmean(after):
        return None
    normal = NormalDist()
    z = normal.inv_cdf(1 - level) + normal.inv_cdf(wanted)
    spread = variance(before) + variance(after)
    rough = ceil(z**2 * spread / (fmean(before) - fmean(after)) ** 2)
    fewest = 2
    while 1 / comb(2 * fewest, fewest) > level:
        fewest += 1
    return max(rough, fewest)
