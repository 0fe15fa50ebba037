"""Exact tests that compare two sides: one test, its scores, or all tests of two runs.

They assume only that without a change, the outcomes are randomly divided between the sides.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, count, repeat
from math import ceil, comb, erfc, fsum, gcd, lcm, sqrt
from operator import add, mul
from statistics import NormalDist, fmean, variance
from typing import NamedTuple

from kindlm.dataclass import dataclass
from kindlm.history.statistics import mean_interval, rate_difference_interval

OFTEN = 0.8
"""A drop counts as found if 4 of 5 comparisons confirm it."""

_EXACT_SCORES = 60
"""The most scores, on both sides together, for which all divisions are counted."""

_EXACT_STEPS = 1 << 18
"""The most products for an exact distribution; larger ones are close to normal."""

_MOST_STEPS = 1 << 17
"""The most sums in one count of signs: enough for sixteen different sizes."""


class Counts(NamedTuple):
    """How many of n repeats passed."""

    passed: int
    n: int


def pooled(repeats: Iterable[Counts]) -> Counts:
    """Return the sum of counts."""
    known = list(repeats)
    return Counts(sum(passed for passed, _ in known), sum(n for _, n in known))


class DiscreteP(NamedTuple):
    """A p-value, and all p-values that the test could have had, in ascending order."""

    value: float
    attainable: tuple[float, ...]


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
    ways = comb(before.n, fewest) * comb(after.n, total - fewest)
    for x in range(fewest, min(total, before.n) + 1):
        yield ways
        # C(n, x + 1) = C(n, x) (n - x) / (x + 1), for both factors
        ways = ways * (before.n - x) * (total - x) // ((x + 1) * (after.n - total + x + 1))


@lru_cache(maxsize=256)
def even_chances(n: int) -> tuple[float, ...]:
    """Return the probability of each number of n at a rate of 1/2: C(n, k) / 2^n."""
    chances, ways, everything = [], 1, 1 << n
    for k in range(n + 1):
        chances.append(ways / everything)
        ways = ways * (n - k) // (k + 1)
    return tuple(chances)


def convolved(chances: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the probability of each sum of two independent numbers, given those of 0, 1, ...

    It is fast if `others` are few.
    """
    found = [0.0] * (len(chances) + len(others) - 1)
    for number, chance in enumerate(others):
        part = slice(number, number + len(chances))
        found[part] = map(add, found[part], map(mul, chances, repeat(chance)))
    return found


def score_drop(before: Sequence[float], after: Sequence[float]) -> DiscreteP:
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
    sums, tails = _rank_tails(tuple(sorted(ranks)), len(old))
    return DiscreteP(tails[sums.index(sum(ranks[: len(old)]))], tails)


@lru_cache(maxsize=4096)
def _rank_tails(ranks: tuple[int, ...], chosen: int) -> tuple[list[int], tuple[float, ...]]:
    """Return the possible sums of `chosen` ranks, highest first, and the p-value of each.

    ways[j] is a polynomial whose coefficient at s counts the sets of j ranks with the sum s. One
    integer holds all coefficients at a fixed width, so adding a rank is a shift and an addition.
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


def repeats_needed(drop: float, same: float, changed: float, level: float) -> int:
    """Return about how many repeats per side show a drop of a mean `OFTEN`.

    This is the normal formula, n = (z(1 - a) √same + z(w) √changed)² / drop², with the variances of
    a difference if nothing changed, and after the drop: J. L. Fleiss, "Statistical Methods for
    Rates and Proportions" (1981), section 3.2.
    """
    normal = NormalDist()
    root = normal.inv_cdf(1 - level) * sqrt(same) + normal.inv_cdf(OFTEN) * sqrt(changed)
    return ceil((root / drop) ** 2)


def score_repeats_needed(
    before: Sequence[float], after: Sequence[float], level: float
) -> int | None:
    """Return the repeats per side that show a drop of mean scores by the rank-sum test.

    None without a drop, or if a side has one score, so that its spread is unknown.
    """
    drop = fmean(before) - fmean(after)
    if min(len(before), len(after)) < 2 or drop <= 0:
        return None
    spread = variance(before) + variance(after)
    fewest = next(n for n in count(2) if comb(2 * n, n) * level >= 1)
    return max(fewest, repeats_needed(drop, spread, spread, level))


def discrete_discoveries(tests: Sequence[DiscreteP], level: float) -> list[bool]:
    """Return which tests are significant, given the p-values that each of them could have had.

    The step-up of Y. Benjamini and Y. Hochberg ("Controlling the false discovery rate", JRSS B 57
    (1995), 289-300) counts p(k) for each of m tests. But with few repeats most tests cannot reach a
    small p, and counting them would cost all power. Here test i counts as F_i(t), its largest
    attainable p-value up to t. Tests with only one possible p-value do not count:

        reject the k smallest p, for the largest k with p(k) <= T and
        sum of F_i(p(k)) / (1 - F_i(T)) <= level k;
        T is the largest t with sum of F_i(t) / (1 - F_i(t)) <= level m

    This is the procedure HSU of S. Döhler, G. Durand, E. Roquain, "New FDR bounds for discrete and
    heterogeneous tests", Electronic Journal of Statistics 12 (2018), 1867-1900, proven for
    independent tests. If nothing changed at all, any discovery is false, and `level` is the
    probability of one.
    """
    supports = Counter(test.attainable for test in tests if len(test.attainable) > 1)
    ceiling = _ceiling(supports, level * supports.total())
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


def _ceiling(supports: Counter[tuple[float, ...]], most: float) -> float:
    """Return the largest attainable t with sum of F / (1 - F) <= most; 0 without one."""
    thresholds = sorted({p for support in supports for p in support if p < 1})

    def total(t: float) -> float:
        reached = ((_reached(s, t), count) for s, count in supports.items())
        return sum(count * f / (1 - f) for f, count in reached)

    found = bisect_right(thresholds, most, key=total)
    return thresholds[found - 1] if found else 0.0


def _reached(support: tuple[float, ...], threshold: float) -> float:
    found = bisect_right(support, threshold)
    return support[found - 1] if found else 0.0


Pair = tuple[Counts, Counts]


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """The change of the pass rates of tests that both runs have; each test counts once.

    `change` is the mean of after - before, with its 95 % interval; `p_worse` and `p_better` are the
    one-sided p-values of a drop and of a rise.
    """

    tests: int
    change: float
    interval: tuple[float, float] | None
    p_worse: float
    p_better: float


def compare_paired(pairs: Sequence[Pair]) -> PairedComparison | None:
    """Compare tests (before, after) by the signs of their differences; None without tests.

    A test is one observation, since its repeats share its difficulty. If nothing changed, both
    signs of its difference are equally likely. So the p-value is the share of all 2^m choices of
    signs that give at least the observed mean (R. A. Fisher, "The Design of Experiments" (1935),
    section 21; M. D. Ernst, "Permutation Methods", Statistical Science 19 (2004), 676-685).
    `_sign_flip` counts them. With one repeat on each side, this is the exact test of Q. McNemar
    (Psychometrika 12 (1947), 153-157).

    If one side has more repeats, a difference is not quite symmetric. Then the larger p-value
    counts, of this test and of the exact test of all tables given their totals (M. Zelen, "The
    analysis of several 2 x 2 contingency tables", Biometrika 58 (1971), 129-137).
    """
    if not pairs:
        return None
    # Integers, so that changes may cancel out exactly.
    scale = lcm(*(before.n * after.n for before, after in set(pairs)))
    moves = [
        (after.passed * before.n - before.passed * after.n) * (scale // (before.n * after.n))
        for before, after in pairs
    ]
    worse, better = _sign_flip(moves)
    if any(before.n != after.n for before, after in pairs):
        lower, higher = _stratified(pairs)
        worse, better = max(worse, lower), max(better, higher)
    interval = _interval([move / scale for move in moves], pairs)
    return PairedComparison(len(pairs), sum(moves) / (scale * len(pairs)), interval, worse, better)


def _interval(means: Sequence[float], pairs: Sequence[Pair]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean change; None for fewer than two tests.

    If all tests changed alike, Student's interval has no width, although each test had few repeats.
    So the result also covers the interval of the difference of two rates, with the effective number
    of repeats: m n for m tests with n repeats each, else m² / sum of 1/n.
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


def _sign_flip(differences: Sequence[int]) -> tuple[float, float]:
    """Return the share of all choices of signs with a sum at most, and at least, the observed one.

    Differences of one size are counted together, the largest sizes first. The sum of those for
    which the count has no room, so that the work is bounded, is treated as normal: that is close,
    since sixteen larger sizes are counted.
    """
    groups = sorted(Counter(map(abs, filter(None, differences))).items(), reverse=True)
    sums, steps = {0: 1.0}, 0
    while groups:
        size, times = groups[0]
        steps += len(sums) * (times + 1)
        if steps > _MOST_STEPS:
            break
        del groups[0]
        shares = even_chances(times)
        grown: dict[int, float] = {}
        for known, chance in sums.items():
            reached = known - times * size
            for share in shares:
                grown[reached] = grown.get(reached, 0.0) + chance * share
                reached += 2 * size
        sums = grown
    tail = _normal_tail(groups)

    def at_least(least: int) -> float:
        return min(1.0, fsum(share * tail(least - s) for s, share in sums.items()))

    return at_least(-sum(differences)), at_least(sum(differences))


def _normal_tail(groups: Sequence[tuple[int, int]]) -> Callable[[int], float]:
    """Return the probability of a sum of at least this size, by a normal distribution.

    Groups are sizes in descending order, each with its number of differences. The distribution is
    corrected for the step between sums.
    """
    if not groups:
        return lambda least: float(least <= 0)
    largest = groups[0][0]
    spread = sqrt(2 * sum(times * (size / largest) ** 2 for size, times in groups))
    highest = sum(size * times for size, times in groups)
    half_step = gcd(*(size for size, _ in groups))

    def tail(least: int) -> float:
        next_sum = highest - (highest - least) // (2 * half_step) * 2 * half_step
        return erfc((next_sum - half_step) / largest / spread) / 2

    return tail


def _stratified(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return the probabilities of at least, and at most, as many passes before, given all passes.

    The passes of each test are counted from the fewest that its totals allow.
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
                ways = list(_deals(before, after, fewest))
                everything = sum(ways)
                chances = convolved(chances, [each / everything for each in ways])
    if steps > _EXACT_STEPS:
        above, spread = observed - mean, sqrt(2 * variance)
        return erfc((above - 0.5) / spread) / 2, erfc((-above - 0.5) / spread) / 2
    return min(1.0, sum(chances[observed:])), min(1.0, sum(chances[: observed + 1]))
