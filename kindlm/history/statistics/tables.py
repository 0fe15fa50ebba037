"""Exact tests that compare two sides: one test, its scores, or all tests of two runs.

They assume only that without a change, the outcomes are randomly divided between the sides.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count, repeat
from math import ceil, comb, erfc, fsum, sqrt
from operator import add, mul
from statistics import NormalDist
from typing import NamedTuple

from kindlm.dataclass import dataclass
from kindlm.history.statistics import mean_interval, rate_difference_interval

OFTEN = 0.8
"""A drop counts as found if 4 of 5 comparisons confirm it."""

_EXACT_SCORES = 60
"""The most scores, on both sides together, for which all divisions are counted."""

_EXACT_PASSES = 400
"""The most passes of all tests that chance may divide, for all divisions to be counted."""


class Counts(NamedTuple):
    """How many of n repeats passed."""

    passed: int
    n: int


def pooled(repeats: Iterable[Counts]) -> Counts:
    """Return the sum of counts."""
    known = list(repeats)
    return Counts(sum(passed for passed, _ in known), sum(n for _, n in known))


class ScoreDrop(NamedTuple):
    """A p-value, and the smallest one that the same scores could have had."""

    p_value: float
    smallest: float


@lru_cache(maxsize=65536)
def fisher_drop(before: Counts, after: Counts) -> float:
    """Return the one-sided p-value of Fisher's exact test for `before` passing more often.

    Given that s of nb + na repeats passed, it is the sum over x >= kb of
    C(nb, x) C(na, s - x) / C(nb + na, s). R. A. Fisher, JRSS 98 (1935), 39-54.
    """
    ways = sum(_deals(before, after, before.passed))
    return ways / comb(before.n + after.n, before.passed + after.passed)


def _deals(before: Counts, after: Counts, fewest: int) -> Iterator[int]:
    """Yield the number of ways to divide the passes with `fewest` before, one more, and so on."""
    total = before.passed + after.passed
    if fewest > min(total, before.n):
        return
    ways = comb(before.n, fewest) * comb(after.n, total - fewest)
    for x in range(fewest, min(total, before.n) + 1):
        yield ways
        # C(n, x + 1) = C(n, x) (n - x) / (x + 1), for both factors
        ways = ways * (before.n - x) * (total - x) // ((x + 1) * (after.n - total + x + 1))


def convolved(chances: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the probability of each sum of two independent numbers, given those of 0, 1, ...

    It is fast if `others` are few.
    """
    found = [0.0] * (len(chances) + len(others) - 1)
    for number, chance in enumerate(others):
        part = slice(number, number + len(chances))
        found[part] = map(add, found[part], map(mul, chances, repeat(chance)))
    return found


def score_drop(before: Sequence[float], after: Sequence[float]) -> ScoreDrop:
    """Return the one-sided p-value for the scores of `before` being higher than those of `after`.

    This is the exact rank-sum test, with mean ranks for ties: F. Wilcoxon, "Individual comparisons
    by ranking methods", Biometrics Bulletin 1 (1945), 80-83. The scores of a judge have no fixed
    scale and no normal distribution. Of more than 60 scores, the first 30 of each side count.
    """
    most = None if len(before) + len(after) <= _EXACT_SCORES else _EXACT_SCORES // 2
    old, new = before[:most], after[:most]
    ordered = sorted([*old, *new])
    # Twice the mean rank of each score, which is an integer.
    ranks = [bisect_left(ordered, one) + bisect_right(ordered, one) + 1 for one in [*old, *new]]
    ways = _rank_sums(tuple(sorted(ranks)), len(old))
    everything = comb(len(ranks), len(old))
    return ScoreDrop(sum(ways[sum(ranks[: len(old)]) :]) / everything, ways[-1] / everything)


@lru_cache(maxsize=4096)
def _rank_sums(ranks: tuple[int, ...], chosen: int) -> tuple[int, ...]:
    """Return the number of sets of `chosen` ranks for each sum, from 0 to the highest.

    ways[j] is a polynomial whose coefficient at s counts the sets of j ranks with the sum s. One
    integer holds all coefficients at a fixed width, so adding a rank is a shift and an addition.
    """
    width = len(ranks) // 8 + 1  # bytes: no coefficient is above 2**len(ranks)
    ways = [1] + [0] * chosen
    for rank in ranks:
        for size in range(chosen, 0, -1):
            ways[size] += ways[size - 1] << (8 * width * rank)
    length = (ways[chosen].bit_length() + 7) // 8
    raw = ways[chosen].to_bytes(-(-length // width) * width, "little")
    return tuple(int.from_bytes(raw[i : i + width], "little") for i in range(0, len(raw), width))


def confirmed_scores(tests: Sequence[ScoreDrop], level: float) -> list[bool]:
    """Return which scores dropped, with at most `level` of them expected to be false.

    This is the step-up of Y. Benjamini and Y. Hochberg ("Controlling the false discovery rate",
    JRSS B 57 (1995), 289-300): it confirms the k smallest of m p-values, for the largest k with
    p(k) <= level k / m. Tests that could not have reached the level, whatever the division of
    their scores, do not count. If nothing changed at all, any drop is false, and `level` is the
    probability of one.
    """
    values = sorted(test.p_value for test in tests if test.smallest <= level)
    reached = (p for k, p in enumerate(values, start=1) if p * len(values) <= level * k)
    limit = max(reached, default=-1.0)
    return [test.p_value <= limit for test in tests]


def repeats_needed(drop: float, spread: float, level: float) -> int | None:
    """Return the repeats per side that show the drop of a mean `OFTEN`; None without a drop.

    `spread` is the sum s of both variances. This is the normal formula, in which all repeats have
    one mean if nothing changed:

        n = (z(1 - a) √(s + d²/2) + z(w) √s)² / d²

    For pass rates, see J. L. Fleiss, "Statistical Methods for Rates and Proportions" (1981),
    section 3.2. The result is never fewer than an exact test needs to reach the level.
    """
    if drop <= 0:
        return None
    normal = NormalDist()
    root = normal.inv_cdf(1 - level) * sqrt(spread + drop**2 / 2)
    root += normal.inv_cdf(OFTEN) * sqrt(spread)
    fewest = next(n for n in count(2) if comb(2 * n, n) * level >= 1)
    return max(fewest, ceil((root / drop) ** 2))


Pair = tuple[Counts, Counts]


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """The change of the pass rates of tests that both runs have.

    `change` is the mean over the tests of after - before, with its 95 % interval; `p_worse` and
    `p_better` are the one-sided p-values of a drop and of a rise.
    """

    tests: int
    change: float
    interval: tuple[float, float]
    p_worse: float
    p_better: float


def compare_paired(pairs: Sequence[Pair]) -> PairedComparison | None:
    """Compare the passes of all tests (before, after) together; None without tests.

    Repeats are compared within their test, since they share its difficulty. If nothing changed, the
    passes of each test are randomly divided between its sides. So `p_worse` is the probability of
    as many passes before, or more, given the passes of each test (M. Zelen, "The analysis of
    several 2 x 2 contingency tables", Biometrika 58 (1971), 129-137). With one repeat on each side,
    this is the exact test of Q. McNemar (Psychometrika 12 (1947), 153-157). For very many repeats,
    the passes before are treated as normal.
    """
    if not pairs:
        return None
    # The passes before, counted from the fewest that the passes of each test allow.
    observed, highest = 0, 0
    mean = variance = 0.0
    divided = []
    for before, after in pairs:
        total, n = before.passed + after.passed, before.n + after.n
        fewest, most = max(0, total - after.n), min(total, before.n)
        observed += before.passed - fewest
        highest += most - fewest
        share = before.n * total / n
        mean += share - fewest
        variance += share * (n - total) * after.n / (n * (n - 1))
        if most > fewest:
            divided.append((before, after, fewest))
    if highest > _EXACT_PASSES:
        above, spread = observed - mean, sqrt(2 * variance)
        worse, better = (erfc((each - 0.5) / spread) / 2 for each in (above, -above))
    else:
        chances = [1.0]
        for test in divided:
            ways = list(_deals(*test))
            everything = sum(ways)
            chances = convolved(chances, [each / everything for each in ways])
        worse = min(1.0, sum(chances[observed:]))
        better = min(1.0, sum(chances[: observed + 1]))
    changes = [after.passed / after.n - before.passed / before.n for before, after in pairs]
    # Rounded, so that changes may cancel out exactly.
    change = round(fsum(changes) / len(pairs), 12)
    return PairedComparison(len(pairs), change, _interval(changes, pairs), worse, better)


def _interval(changes: Sequence[float], pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return the 95 % interval of the mean change: Student's, but with room for the repeats.

    If all tests changed alike, Student's interval has no width, although each test had few repeats.
    So the result also covers the interval of the difference of two rates, with the effective number
    of repeats: m n for m tests with n repeats each, else m² / sum of 1/n.
    """
    sides = []
    for side in zip(*pairs, strict=True):
        rate = fsum(counts.passed / counts.n for counts in side) / len(side)
        repeats = len(side) ** 2 / fsum(1 / counts.n for counts in side)
        sides.append((rate * repeats, repeats))
    low, high = rate_difference_interval(*sides)
    student = mean_interval(changes) or (low, high)
    return max(-1.0, min(student[0], low)), min(1.0, max(student[1], high))
