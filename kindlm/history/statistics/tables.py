"""Exact tests of two groups, given what came out of both together.

If there is no difference, every way to deal the outcomes out to the two groups is equally likely,
and nothing else has to be known.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, repeat
from math import ceil, comb
from operator import add, mul
from statistics import NormalDist, fmean, variance
from typing import NamedTuple

from kindlm.dataclass import dataclass

OFTEN = 0.8
"""A drop counts as found if 4 of 5 comparisons confirm it."""

_EXACT_SCORES = 60
"""Up to so many scores on both sides together, all ways to deal them out are counted."""


class Counts(NamedTuple):
    """How many of n repeats passed."""

    passed: int
    n: int


def pooled(repeats: Iterable[Counts]) -> Counts:
    """Return all of several repeats together."""
    known = list(repeats)
    return Counts(sum(passed for passed, _ in known), sum(n for _, n in known))


@dataclass(frozen=True, slots=True)
class DiscreteP:
    """A p-value, and all p-values that the test could have had, ascending."""

    value: float
    attainable: tuple[float, ...]


@lru_cache(maxsize=65536)
def fisher_drop(before: Counts, after: Counts) -> float:
    """Return the one-sided p-value of Fisher's exact test for `before` passing more often.

    Given that s of nb + na repeats passed, those before are hypergeometric: the sum over x >= kb
    of C(nb, x) C(na, s - x) / C(nb + na, s). R. A. Fisher, JRSS 98 (1935), 39-54.
    """
    ways = sum(_deals(before, after, before.passed))
    return ways / comb(before.n + after.n, before.passed + after.passed)


def fisher_mid_p(before: Counts, after: Counts) -> float:
    """Return Fisher's p-value with the outcome itself counted by half.

    Closer to its level than Fisher's own: H. O. Lancaster, "Significance tests in discrete
    distributions", JASA 56 (1961), 223-234.
    """
    ways = sum(sum(_deals(before, after, before.passed + more)) for more in (0, 1))
    return ways / (2 * comb(before.n + after.n, before.passed + after.passed))


def passes_before(before: Counts, after: Counts) -> Iterator[float]:
    """Yield the chance of each number of passes before, the fewest first, given all passes."""
    everything = comb(before.n + after.n, before.passed + after.passed)
    fewest = max(0, before.passed + after.passed - after.n)
    return (ways / everything for ways in _deals(before, after, fewest))


def _deals(before: Counts, after: Counts, fewest: int) -> Iterator[int]:
    """Yield the ways to deal out the passes with so many of them before, with one more, ..."""
    total = before.passed + after.passed
    if fewest > min(total, before.n):
        return
    ways = comb(before.n, fewest) * comb(after.n, total - fewest)
    for x in range(fewest, min(total, before.n) + 1):
        yield ways
        # C(n, x + 1) = C(n, x) (n - x) / (x + 1), for both factors, and without a remainder
        ways = ways * (before.n - x) * (total - x) // ((x + 1) * (after.n - total + x + 1))


@lru_cache(maxsize=256)
def even_chances(n: int) -> tuple[float, ...]:
    """Return the chance of each number of n at a rate of 1/2: C(n, k) / 2^n."""
    chances, ways, everything = [], 1, 1 << n
    for k in range(n + 1):
        chances.append(ways / everything)
        ways = ways * (n - k) // (k + 1)
    return tuple(chances)


def convolved(chances: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the chance of each sum of two independent numbers, given those of 0, 1, ... of each.

    The sums are added up in the order of the first, whichever is gone through here: the shorter.
    """
    found = [0.0] * (len(chances) + len(others) - 1)
    shorter, longer = list(enumerate(chances)), others
    if len(others) < len(chances):
        shorter, longer = list(enumerate(others))[::-1], chances
    for number, chance in shorter:
        part = slice(number, number + len(longer))
        found[part] = map(add, found[part], map(mul, longer, repeat(chance)))
    return found


def score_drop(before: Sequence[float], after: Sequence[float]) -> DiscreteP:
    """Return the one-sided p-value for the scores of `before` being higher than those of `after`.

    The exact rank-sum test, with mean ranks for ties: F. Wilcoxon, "Individual comparisons by
    ranking methods", Biometrics Bulletin 1 (1945), 80-83. Ranks, since the scores of a judge have
    no fixed scale and no normal distribution. Of more than 60 scores, the first 30 of each side
    are compared.
    """
    half = _EXACT_SCORES // 2
    old, new = (
        side if len(before) + len(after) <= _EXACT_SCORES else side[:half]
        for side in (before, after)
    )
    if not old or not new:
        # It can't come out in more than one way.
        return DiscreteP(1.0, (1.0,))
    ordered = sorted([*old, *new])
    # Twice the mean rank of each score; doubled, they are whole numbers.
    ranks = [bisect_left(ordered, one) + bisect_right(ordered, one) + 1 for one in [*old, *new]]
    sums, tails = _rank_tails(tuple(sorted(ranks)), len(old))
    return DiscreteP(tails[sums.index(sum(ranks[: len(old)]))], tails)


@lru_cache(maxsize=4096)
def _rank_tails(ranks: tuple[int, ...], chosen: int) -> tuple[list[int], tuple[float, ...]]:
    """Return the possible sums of so many of the ranks, highest first, and the p-value of each.

    ways[j] is a polynomial whose coefficient at s counts the ways to sum j ranks up to s; it is
    kept as one whole number with a fixed width for each coefficient, so that adding a rank is a
    shift and an addition.
    """
    width = len(ranks) // 8 + 1  # bytes: no coefficient is above 2**len(ranks)
    ways = [1] + [0] * chosen
    for rank in ranks:
        for size in range(chosen, 0, -1):
            ways[size] += ways[size - 1] << (8 * width * rank)
    size = (ways[chosen].bit_length() + 7) // 8
    raw = ways[chosen].to_bytes(-(-size // width) * width, "little")
    counts = [int.from_bytes(raw[i : i + width], "little") for i in range(0, len(raw), width)]
    sums = [s for s in range(len(counts) - 1, -1, -1) if counts[s]]
    everything = comb(len(ranks), chosen)
    return sums, tuple(ways / everything for ways in accumulate(counts[s] for s in sums))


def score_repeats_needed(
    before: Sequence[float], after: Sequence[float], level: float
) -> int | None:
    """Return the repeats per side that show a drop of mean scores; None without one, or spread.

    n = (z(1 - a) + z(w))² (s1² + s2²) / (m1 - m2)², the normal formula for two means, but never
    fewer than the rank-sum test needs to get to the level at all. Of one score on a side the
    spread is not known.
    """
    if min(len(before), len(after)) < 2 or fmean(before) <= fmean(after):
        return None
    normal = NormalDist()
    z = normal.inv_cdf(1 - level) + normal.inv_cdf(OFTEN)
    spread = variance(before) + variance(after)
    rough = ceil(z**2 * spread / (fmean(before) - fmean(after)) ** 2)
    fewest = 2
    while 1 / comb(2 * fewest, fewest) > level:
        fewest += 1
    return max(rough, fewest)


def discrete_discoveries(tests: Sequence[DiscreteP], level: float) -> list[bool]:
    """Return which tests stand out, knowing which p-values each of them could have had at all.

    The step-up of Y. Benjamini and Y. Hochberg ("Controlling the false discovery rate", JRSS B 57
    (1995), 289-300) counts each of m tests with p(k). With few repeats most tests can't get there,
    whatever happens, and counting them in costs all power. Here test i counts with F_i(t), its
    largest attainable p-value up to t, and those that can have but one p-value don't count:

        reject the k smallest p, for the largest k with p(k) <= T and
        sum of F_i(p(k)) / (1 - F_i(T)) <= level k;
        T is the largest t with sum of F_i(t) / (1 - F_i(t)) <= level m

    The procedure HSU of S. Döhler, G. Durand, E. Roquain, "New FDR bounds for discrete and
    heterogeneous tests", Electronic Journal of Statistics 12 (2018), 1867-1900, proven for
    independent tests. If nothing changed at all, any discovery is false, and the rate is the
    probability of one.
    """
    supports = Counter(test.attainable for test in tests if len(test.attainable) > 1)
    ceiling = _ceiling(supports, level * supports.total())
    if ceiling is None:
        return [False] * len(tests)
    weights = {s: count / (1 - _reached(s, ceiling)) for s, count in supports.items()}
    ordered = sorted(test.value for test in tests)
    bound = -1.0
    for k, p in enumerate(ordered, start=1):
        if p > ceiling:
            break
        expected = sum(weight * _reached(s, p) for s, weight in weights.items())
        if expected <= level * k:
            bound = p
    return [test.value <= bound for test in tests]


def _ceiling(supports: Counter[tuple[float, ...]], most: float) -> float | None:
    """Return the largest attainable t whose weighted sum of F is at most `most`; None if none."""
    thresholds = sorted({p for support in supports for p in support if p < 1})

    def total(t: float) -> float:
        reached = ((_reached(s, t), count) for s, count in supports.items())
        return sum(count * f / (1 - f) if f < 1 else float("inf") for f, count in reached)

    found = bisect_right(thresholds, most, key=total)
    return thresholds[found - 1] if found else None


def _reached(support: tuple[float, ...], threshold: float) -> float:
    """Return the largest attainable p-value up to the threshold, 0 if there is none."""
    found = bisect_right(support, threshold)
    return support[found - 1] if found else 0.0
