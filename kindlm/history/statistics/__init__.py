"""Intervals, pass@k and flakiness, each with formula and source; all functions are pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import atan, comb, cos, fsum, hypot, pi, sin, sqrt
from statistics import NormalDist, fmean
from typing import NamedTuple

_LEVEL = 0.95
_Z_95 = 1.959963984540054
"""95 % of the standard normal distribution lie between -z and z."""

_MOST_T = 1024.0
"""For any degrees of freedom, 99.9 % of Student's t lie below this value."""


@lru_cache
def wilson_interval(
    successes: float, n: float, level: float = _LEVEL
) -> tuple[float, float] | None:
    """Return Wilson's interval of a proportion at a level; None without observations.

    E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 22
    (1927), 209-212, without continuity correction. Unlike the textbook interval, it keeps its level
    for few observations and for proportions near 0 and 1.

        (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)
    """
    if n == 0:
        return None
    rate = successes / n
    z = _Z_95 if level == _LEVEL else NormalDist().inv_cdf((1 + level) / 2)
    spread = z**2 / n
    center = rate + spread / 2
    margin = z * sqrt((rate * (1 - rate) + spread / 4) / n)
    low, high = (center - margin) / (1 + spread), (center + margin) / (1 + spread)
    # Rounding may move the ends away from 0 and 1.
    return (0.0 if successes == 0 else max(0.0, low)), (1.0 if successes == n else min(1.0, high))


@lru_cache
def rate_difference_interval(
    before: tuple[float, float], after: tuple[float, float]
) -> tuple[float, float] | None:
    """Return the 95 % interval of the change of a rate, after - before; counts are (k, n).

    It combines two Wilson intervals: R. G. Newcombe, "Interval estimation for the difference
    between independent proportions", Statistics in Medicine 17 (1998), 873-890, method 10. None if
    a side has no observations.
    """
    first, second = wilson_interval(*before), wilson_interval(*after)
    if first is None or second is None:
        return None
    old, new = before[0] / before[1], after[0] / after[1]
    change = new - old
    low = change - hypot(new - second[0], first[1] - old)
    high = change + hypot(second[1] - new, old - first[0])
    return max(-1.0, low), min(1.0, high)


def mean_interval(values: Sequence[float], level: float = _LEVEL) -> tuple[float, float] | None:
    """Return Student's interval of a mean at a level; None for fewer than two values.

    m ± t(n - 1) s/√n: "Student", "The Probable Error of a Mean", Biometrika 6 (1908), 1-25. The
    values must be independent: for several repeats of several tests, pass the mean of each test.
    """
    if len(values) < 2:
        return None
    mean, n = fmean(values), len(values)
    if min(values) == max(values):
        return mean, mean
    # `statistics.variance` computes with fractions, which is slow.
    variance = fsum((value - mean) ** 2 for value in values) / (n - 1)
    margin = _student(n - 1, level) * sqrt(variance / n)
    return mean - margin, mean + margin


@lru_cache(maxsize=256)
def _student(freedom: int, level: float) -> float:
    """Return the t for which Student's t lies between -t and t with this probability."""
    low, high = 0.0, _MOST_T
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """Return the probability that Student's t lies between -t and t (A. and S., 26.7.3-4)."""
    angle = atan(t / sqrt(freedom))
    square = cos(angle) ** 2
    odd = freedom % 2
    term = cos(angle) if odd else 1.0
    total = 0.0
    for step in range(1 + odd, freedom, 2):
        total += term
        term *= square * step / (step + 1)
    return 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total


def pass_at(passed: int, n: int) -> tuple[float, ...]:
    """Return pass@k for k from 1 to n: the probability that at least one of k repeats passes.

    The unbiased estimate from c passed of n repeats is 1 - C(n - c, k) / C(n, k): M. Chen and
    others, "Evaluating Large Language Models Trained on Code", arXiv:2107.03374 (2021).
    """
    return tuple(1 - comb(n - passed, k) / comb(n, k) for k in range(1, n + 1))


def pass_hat(passed: int, n: int) -> tuple[float, ...]:
    """Return pass^k for k from 1 to n: the probability that all of k repeats pass.

    The unbiased estimate is C(c, k) / C(n, k): S. Yao and others, "τ-bench", arXiv:2406.12045
    (2024).
    """
    return tuple(comb(passed, k) / comb(n, k) for k in range(1, n + 1))


class Flakiness(NamedTuple):
    """How often a test changes its result; None without two results to compare.

    `within` is the probability that two repeats of one run differ, 0 to 1/2 for independent
    repeats. `between` is the share of successive runs in which the test changed between all passed
    and not all passed.
    """

    within: float | None
    between: float | None


def flakiness(history: Sequence[tuple[int, int]]) -> Flakiness:
    """Return the flakiness of a test, given its passed and all repeats by run, oldest first.

    `within` is 2 sum k (n - k) / sum n (n - 1), the share of unequal pairs of repeats: the unbiased
    estimate of 2 p (1 - p), the diversity of E. H. Simpson (Nature 163 (1949), 688), over all runs.
    """
    runs = [(passed, n) for passed, n in history if n]
    pairs = sum(n * (n - 1) for _, n in runs)
    unequal = sum(2 * passed * (n - passed) for passed, n in runs)
    flips = [(one[0] == one[1]) != (other[0] == other[1]) for one, other in pairwise(runs)]
    return Flakiness(unequal / pairs if pairs else None, fmean(flips) if flips else None)
