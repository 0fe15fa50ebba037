"""What repeats tell of one test: chances of several tries, flakiness, and how many are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import ceil, comb, sqrt
from statistics import NormalDist, fmean, variance

from kindlm.history.statistics.pass_rates import binomial
from kindlm.history.statistics.tables import Counts, fisher_mid_p

__all__ = [
    "Flakiness",
    "flakiness",
    "pass_at_k",
    "pass_hat_k",
    "repeats_needed",
    "score_repeats_needed",
]

_SPREAD = 2
"""Fewer values have no spread."""

_MOST_EXACT = 60
"""Up to so many repeats on a side, the power is computed; above, the normal formula is close."""


def pass_at_k(passed: int, n: int, k: int) -> float | None:
    """Return the probability that at least one of k tries passes, 1 - C(n - c, k) / C(n, k).

    Unbiased, from n repeats of which c passed: M. Chen and others, "Evaluating Large Language
    Models Trained on Code", arXiv:2107.03374 (2021). None for k > n: not enough was seen.
    """
    return 1 - comb(n - passed, k) / comb(n, k) if 1 <= k <= n else None


def pass_hat_k(passed: int, n: int, k: int) -> float | None:
    """Return pass^k, the probability that all of k tries pass, C(c, k) / C(n, k).

    Unbiased: S. Yao and others, "τ-bench", arXiv:2406.12045 (2024). None for k > n.
    """
    return comb(passed, k) / comb(n, k) if 1 <= k <= n else None


@dataclass(frozen=True, slots=True)
class Flakiness:
    """How much a test disagrees with itself; None where it was never seen twice.

    `within` is the probability that two repeats of one run come out differently, 0 to 1/2 for
    independent repeats. `between` is the part of successive runs in which the test went from all
    passed to not, or back.
    """

    within: float | None
    between: float | None


def flakiness(history: Sequence[Counts]) -> Flakiness:
    """Return the flakiness of a test from its repeats in successive runs, oldest first.

    `within` counts pairs of repeats, 2 sum k (n - k) / sum n (n - 1): the unbiased estimate of
    2 p (1 - p), the diversity of E. H. Simpson (Nature 163 (1949), 688), pooled over runs.
    """
    runs = [counts for counts in history if counts.n]
    pairs = sum(n * (n - 1) for _, n in runs)
    unequal = sum(2 * passed * (n - passed) for passed, n in runs)
    clean = [passed == n for passed, n in runs]
    flips = sum(one != other for one, other in pairwise(clean))
    return Flakiness(
        unequal / pairs if pairs else None, flips / (len(runs) - 1) if len(runs) > 1 else None
    )


def _rough_power(n: int, before: float, after: float, level: float) -> float:
    """Return about how often a drop between two pass rates is confirmed with n repeats a side.

    Quicker than `power`, which is exact: it goes by the mid-p of Fisher's test, which is close to
    the p-value of `pass_rate_drop`. Computed over all outcomes.
    """
    chances = binomial(n, after)
    below = 0.0
    seen = 0.0
    counted = 0
    for passed, chance in enumerate(binomial(n, before)):
        limit = _limits(n, level)[passed]
        while counted <= limit:
            below += chances[counted]
            counted += 1
        seen += chance * below
    return seen


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
    if min(len(before), len(after)) < _SPREAD or fmean(before) <= fmean(after):
        return None
    normal = NormalDist()
    z = normal.inv_cdf(1 - level) + normal.inv_cdf(wanted)
    spread = variance(before) + variance(after)
    rough = ceil(z**2 * spread / (fmean(before) - fmean(after)) ** 2)
    fewest = 2
    while 1 / comb(2 * fewest, fewest) > level:
        fewest += 1
    return max(rough, fewest)


@lru_cache(maxsize=4096)
def _limits(n: int, level: float) -> tuple[int, ...]:
    """Return, for each number of passes before, the most passes after that show a drop (or -1)."""
    limits = []
    limit = -1
    for passed in range(n + 1):
        while limit < n and _shows(Counts(passed, n), Counts(limit + 1, n), level):
            limit += 1
        limits.append(limit)
    return tuple(limits)


def _shows(before: Counts, after: Counts, level: float) -> bool:
    return fisher_mid_p(before, after) <= level
