"""Statistics on counts and scores, each with its formula and source.

Pure functions without random numbers: the same input gives the same output, to the last bit. This
module has intervals: of a pass rate, of a difference of two rates, and of a mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import atan, comb, cos, fsum, hypot, pi, sin, sqrt
from statistics import NormalDist, fmean
from typing import NamedTuple

_LEVEL = 0.95
_Z_95 = 1.959963984540054
"""The standard normal distribution lies between -z and z in 95 of 100 cases."""

_MOST_T = 1024.0
"""Student's t lies below it in 99.9 of 100 cases, whatever its freedom."""


def wilson_interval(
    successes: float, n: float, level: float = _LEVEL
) -> tuple[float, float] | None:
    """Return the score interval of a proportion at a level, None if nothing was observed.

    The formula is Wilson's, without continuity correction: E. B. Wilson, "Probable Inference, the
    Law of Succession, and Statistical Inference", JASA 22 (1927), 209-212. It holds its level for
    few observations and for proportions near 0 and 1, where the textbook interval does not.

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
    # Rounding may push the ends of 0 of n and n of n out of [0, 1], or off them.
    return (0.0 if successes == 0 else max(0.0, low)), (1.0 if successes == n else min(1.0, high))


def rate_difference_interval(
    before: tuple[float, float], after: tuple[float, float]
) -> tuple[float, float] | None:
    """Return the 95 % interval of the change of a rate, after - before; counts are (k, n).

    Two Wilson intervals joined by squares: R. G. Newcombe, "Interval estimation for the difference
    between independent proportions", Statistics in Medicine 17 (1998), 873-890, method 10. None if
    nothing was observed on a side.
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
    """Return Student's interval of a mean at a level, None for fewer than two values.

    m ± t(n - 1) s/√n: "Student", "The Probable Error of a Mean", Biometrika 6 (1908), 1-25. The
    values are independent: of several repeats of several tests, give the mean of each test.
    """
    if len(values) < 2:
        return None
    mean, n = fmean(values), len(values)
    if min(values) == max(values):
        return mean, mean
    # The variance of the standard library takes fractions, and its time.
    variance = fsum((value - mean) ** 2 for value in values) / (n - 1)
    margin = _student(n - 1, level) * sqrt(variance / n)
    return mean - margin, mean + margin


@lru_cache(maxsize=256)
def _student(freedom: int, level: float = _LEVEL) -> float:
    """Return the value that Student's t lies within, on both sides of 0, so often."""
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
    """Return pass@k for k from 1 to n: how likely at least one of k tries passes.

    Unbiased, from n repeats of which c passed, 1 - C(n - c, k) / C(n, k): M. Chen and others,
    "Evaluating Large Language Models Trained on Code", arXiv:2107.03374 (2021).
    """
    return tuple(1 - comb(n - passed, k) / comb(n, k) for k in range(1, n + 1))


def pass_hat(passed: int, n: int) -> tuple[float, ...]:
    """Return pass^k for k from 1 to n: how likely all of k tries pass.

    Unbiased, C(c, k) / C(n, k): S. Yao and others, "τ-bench", arXiv:2406.12045 (2024).
    """
    return tuple(comb(passed, k) / comb(n, k) for k in range(1, n + 1))


class Flakiness(NamedTuple):
    """How much a test disagrees with itself; None where it was never seen twice.

    `within` is the probability that two repeats of one run come out differently, 0 to 1/2 for
    independent repeats. `between` is the part of successive runs in which the test went from all
    passed to not, or back.
    """

    within: float | None
    between: float | None


def flakiness(history: Sequence[tuple[int, int]]) -> Flakiness:
    """Return the flakiness of a test from its repeats in successive runs, oldest first.

    Of each run, how many passed of how many.

    `within` counts pairs of repeats, 2 sum k (n - k) / sum n (n - 1): the unbiased estimate of
    2 p (1 - p), the diversity of E. H. Simpson (Nature 163 (1949), 688), pooled over runs.
    """
    runs = [(passed, n) for passed, n in history if n]
    pairs = sum(n * (n - 1) for _, n in runs)
    unequal = sum(2 * passed * (n - passed) for passed, n in runs)
    flips = [(one[0] == one[1]) != (other[0] == other[1]) for one, other in pairwise(runs)]
    return Flakiness(unequal / pairs if pairs else None, fmean(flips) if flips else None)
