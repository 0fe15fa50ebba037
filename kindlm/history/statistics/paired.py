"""Two runs as a whole: the same tests, before and after."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from math import erfc, fsum, gcd, lcm, sqrt
from typing import TypeAlias

from kindlm.dataclass import dataclass
from kindlm.history.statistics import mean_interval, rate_difference_interval
from kindlm.history.statistics.tables import Counts, convolved, even_chances, passes_before

_EXACT_STEPS = 1 << 18
"""So many products are formed to count a distribution; larger ones are as good as normal."""

_MOST_STEPS = 1 << 17
"""So many sums are formed in a count: enough for sixteen sizes that are all different."""

_Tail: TypeAlias = Callable[[int], float]
"""Returns the chance of a sum that is at least so large, all signs being equally likely."""

_Groups: TypeAlias = Sequence[tuple[int, int]]
"""Sizes, whole numbers above 0, with how often there is each."""

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
    Science 19 (2004), 676-685). They are counted, not sampled; of more than
    thirty tests that differ, the small differences are taken for normal where there are too many
    choices to count. With one repeat on each side this is the exact test of Q. McNemar
    (Psychometrika 12 (1947), 153-157).

    Where a side has more repeats than the other, a difference is not quite symmetric. Then the
    exact test of all tables given their totals has to agree (M. Zelen, "The analysis of several
    2 x 2 contingency tables", Biometrika 58 (1971), 129-137): the larger p-value counts.
    """
    if not pairs:
        return None
    times = Counter(pairs)
    moves = {pair: Fraction(*pair[1]) - Fraction(*pair[0]) for pair in times}
    means = [float(moves[pair]) for pair in pairs]
    worse, better = _sign_flip([moves[pair] for pair in pairs])
    if any(before.n != after.n for before, after in pairs):
        lower, higher = _stratified(pairs)
        worse, better = max(worse, lower), max(better, higher)
    # Without rounding: changes that cancel out are no change.
    change = float(sum(moves[pair] * n for pair, n in times.items()) / len(pairs))
    return PairedComparison(len(pairs), change, _interval(means, pairs), worse, better)


def _interval(means: Sequence[float], pairs: Sequence[Pair]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean change, None for fewer than two tests.

    Student's interval knows the tests by how much they differ. Where all moved alike it has no
    width, though each of them was seen in a few repeats only. So it never ends inside the interval
    that the repeats of both runs give, as many as are worth the mean of the tests: of m tests with
    n repeats each, m n of them; m² / sum of 1/n where they have different numbers.
    """
    student = mean_interval(means)
    if student is None:
        return None
    sides = []
    for side in zip(*pairs, strict=True):
        rate = fsum(counts.passed / counts.n for counts in side) / len(side)
        repeats = len(side) ** 2 / fsum(1 / counts.n for counts in side)
        sides.append((rate * repeats, repeats))
    repeated = rate_difference_interval(*sides)
    assert repeated is not None
    return max(-1.0, min(student[0], repeated[0])), min(1.0, max(student[1], repeated[1]))


def _sign_flip(differences: Sequence[Fraction]) -> tuple[float, float]:
    """Return the part of all choices of signs that give so low a sum, and so high a one.

    Many differences have more choices of signs than can be counted. Those of one size are counted
    together, the largest first, and what is too much for one count in a second one. What is too
    much even for two is taken for normal, which it is close to: more than thirty sizes are left
    then, and the largest, which would not be, are counted all the same. The work is bounded,
    whatever the differences.
    """
    scale = lcm(*(difference.denominator for difference in differences))
    moved = [int(difference * scale) for difference in differences if difference]
    groups = sorted(Counter(map(abs, moved)).items(), reverse=True)
    sums, counted = _count(groups)
    small = groups[counted:]
    others, more = _count(small)
    tail = _normal_tail(small) if more < len(small) else _counted_tail(others)

    def at_least(least: int) -> float:
        return min(1.0, sum(share * tail(least - s) for s, share in sums.items()))

    return at_least(-sum(moved)), at_least(sum(moved))


def _count(groups: _Groups) -> tuple[dict[int, float], int]:
    """Return the chance of each sum of the first groups, and how many groups could be counted."""
    sums, steps = {0: 1.0}, 0
    for number, (size, times) in enumerate(groups):
        steps += len(sums) * (times + 1)
        if steps > _MOST_STEPS:
            return sums, number
        shares = even_chances(times)
        grown: dict[int, float] = {}
        for known, chance in sums.items():
            reached = known - times * size
            for share in shares:
                grown[reached] = grown.get(reached, 0.0) + chance * share
                reached += 2 * size
        sums = grown
    return sums, len(groups)


def _counted_tail(sums: Mapping[int, float]) -> _Tail:
    reached = sorted(sums)
    # From the rarest on, so that small chances keep all their digits.
    chances = list(accumulate((sums[s] for s in reversed(reached)), initial=0.0))
    return lambda least: chances[len(reached) - bisect_left(reached, least)]


def _normal_tail(groups: _Groups) -> _Tail:
    """Return the tail of a normal distribution, corrected for the steps that the sums come in."""
    largest = groups[0][0]
    spread = sqrt(2 * sum(times * (size / largest) ** 2 for size, times in groups))
    highest = sum(size * times for size, times in groups)
    half_step = gcd(*(size for size, _ in groups))

    def tail(least: int) -> float:
        next_sum = highest - (highest - least) // (2 * half_step) * 2 * half_step
        return erfc((next_sum - half_step) / largest / spread) / 2

    return tail


def _stratified(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return P(as many passes before, or more) and P(as many, or fewer), given all passes.

    Of each test, the passes before are counted from the fewest that its totals allow.
    """
    observed, steps, chances = 0, 0, [1.0]
    mean = variance = 0.0
    for before, after in pairs:
        total, n = before.passed + after.passed, before.n + after.n
        fewest, most = max(0, total - after.n), min(total, before.n)
        observed += before.passed - fewest
        share = before.n * total / n
        mean += share - fewest
        variance += share * (n - total) * after.n / (n * (n - 1))
        if most > fewest:
            steps += len(chances) * (most - fewest + 1)
            if steps <= _EXACT_STEPS:
                chances = convolved(list(passes_before(before, after)), chances)
    if steps > _EXACT_STEPS:
        above, spread = observed - mean, sqrt(2 * variance)
        return erfc((above - 0.5) / spread) / 2, erfc((-above - 0.5) / spread) / 2
    return min(1.0, sum(chances[observed:])), min(1.0, sum(chances[: observed + 1]))
