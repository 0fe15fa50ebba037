"""Two runs as a whole: the same tests, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, lcm, sqrt
from statistics import NormalDist

from kindlm.history.statistics.intervals import mean_interval
from kindlm.history.statistics.tables import Counts, coefficients

__all__ = ["PairedComparison", "compare_paired"]

_EXACT_BITS = 50_000_000
"""The size of a distribution that is still counted; larger ones are as good as normal."""

Pair = tuple[Counts, Counts]


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """How the pass rates of the same tests moved, each test counting once.

    `change` is the mean over tests of after - before, with its 95 % interval; `p_worse` and
    `p_better` are the one-sided p-values of a drop and of a rise.
    """

    tests: int
    change: float
    interval: tuple[float, float] | None
    p_worse: float
    p_better: float


def compare_paired(pairs: Sequence[Pair]) -> PairedComparison | None:
    """Compare tests (before, after) by the signs of their differences; None if there are none.

    A test is one observation, however often it was repeated: its repeats share its difficulty.
    If nothing changed, each test's difference might as well have had the other sign; the p-value
    is the part of all 2^m choices of signs that give at least the mean seen (R. A. Fisher, "The
    Design of Experiments" (1935), section 21; M. D. Ernst, "Permutation Methods", Statistical
    Science 19 (2004), 676-685). They are counted, not sampled. With one repeat on each side this
    is the exact test of Q. McNemar (Psychometrika 12 (1947), 153-157).

    Where a side has more repeats than the other, a difference is not quite symmetric. Then the
    exact test of all tables given their totals has to agree (M. Zelen, "The analysis of several
    2 x 2 contingency tables", Biometrika 58 (1971), 129-137): the larger p-value counts.
    """
    if not pairs:
        return None
    changes = [Fraction(*after) - Fraction(*before) for before, after in pairs]
    means = [float(change) for change in changes]
    worse, better = _sign_flip([-change for change in changes]), _sign_flip(changes)
    if any(before.n != after.n for before, after in pairs):
        worse = max(worse, _stratified(pairs))
        better = max(better, _stratified([(after, before) for before, after in pairs]))
    return PairedComparison(
        len(pairs), float(sum(changes)) / len(pairs), mean_interval(means), worse, better
    )


def _sign_flip(differences: Sequence[Fraction]) -> float:
    """Return the part of all choices of signs whose sum is at least the one seen.

    The sums of all subsets of the sizes are a product of polynomials 1 + x^size, kept in one
    whole number.
    """
    scale = lcm(*(difference.denominator for difference in differences))
    seen = [int(difference * scale) for difference in differences if difference]
    total = sum(abs(size) for size in seen)
    observed = sum(size for size in seen if size > 0)
    width = len(seen) // 8 + 1  # bytes: no coefficient is above 2**len(seen)
    if total * width * 8 > _EXACT_BITS:
        deviation = sqrt(sum(size**2 for size in seen)) / 2
        return 1 - NormalDist(total / 2, deviation).cdf(observed - 0.5)
    ways = 1
    for size in seen:
        ways += ways << (8 * width * abs(size))
    at_least = ways >> (8 * width * observed)
    return sum(coefficients(at_least, width)) / (1 << len(seen))


def _stratified(pairs: Sequence[Pair]) -> float:
    """Return P(as many passes before, or more), given the passes of each test on both sides."""
    observed = 0
    distribution = [1.0]
    mean = spread = 0.0
    for before, after in pairs:
        total, everything = before.passed + after.passed, before.n + after.n
        observed += before.passed - max(0, total - after.n)
        mean += before.n * total / everything - max(0, total - after.n)
        if everything > 1:
            rest = (everything - total) * after.n / (everything - 1)
            spread += before.n * total * rest / everything**2
    if spread == 0:
        return 1.0
    if sum(min(before.n, after.n) for before, after in pairs) * len(pairs) > _EXACT_BITS // 50:
        return 1 - NormalDist(mean, sqrt(spread)).cdf(observed - 0.5)
    for before, after in pairs:
        distribution = _convolve(distribution, _hypergeometric(before, after))
    return min(1.0, sum(distribution[observed:]))


def _hypergeometric(before: Counts, after: Counts) -> list[float]:
    total = before.passed + after.passed
    everything = comb(before.n + after.n, total)
    least, most = max(0, total - after.n), min(total, before.n)
    return [
        comb(before.n, x) * comb(after.n, total - x) / everything for x in range(least, most + 1)
    ]


def _convolve(left: list[float], right: list[float]) -> list[float]:
    result = [0.0] * (len(left) + len(right) - 1)
    for shift, weight in enumerate(right):
        for position, value in enumerate(left):
            result[position + shift] += weight * value
    return result
