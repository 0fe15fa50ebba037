"""What a comparison of two runs can show, given the repeats of their tests.

It considers one test that always passed, beside the other tests as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from math import sqrt
from statistics import fmean

from kindlm.dataclass import dataclass
from kindlm.history.diff.evidence import RATES_LEVEL, SETTLED_LEVEL, compared_rates
from kindlm.history.diff.evidence_values import Key, TestPair
from kindlm.history.statistics.pass_rates import (
    Design,
    Kinds,
    Looks,
    binomial,
    crossings,
    expected_by_chance,
    kinds_of,
    large_drop,
    together,
    worst_chance,
)
from kindlm.history.statistics.tables import OFTEN, Counts

_STEPS = 20
_ENOUGH = 10
"""Repeats of each run that are suggested where nothing can be confirmed."""


_SMALLEST_P = 2.0**-40
"""No level and number of tests asks for less."""

_PRECISION = 1.002
"""How far the limit that is found may lie below the exact one."""


@dataclass(frozen=True, slots=True)
class ComparisonPower:
    """What a comparison can confirm for a test that always passed, given the repeats in each run.

    A drop to the pass rate `found`, in steps of 5 points, is confirmed in 4 of 5 comparisons, one
    to 70 % in the share `thirty` of them. Where `found` is None, no drop can be confirmed, and
    `enough` says what more repeats would show.
    """

    before: int
    after: int
    found: float | None
    thirty: float
    enough: ComparisonPower | None = None


def comparison_power(tests: Iterable[tuple[Counts, int]]) -> ComparisonPower | None:
    """Return what a comparison can show, by the counts of tests before and their repeats after.

    It is about tests with the most common number of repeats. None if nothing is compared.
    """
    compared = Counter((before, n) for before, n in tests if before.n and n)
    if not compared:
        return None
    designs, enough = Counter[tuple[int, int]](), Counter[tuple[Counts, int]]()
    for (old, n), times in compared.items():
        designs[old.n, n] += times
        enough[_scaled(old, _ENOUGH), _ENOUGH] += times
    (before, after), _ = designs.most_common(1)[0]
    shown = _power(compared, before, after)
    if shown.found is not None:
        return shown
    return ComparisonPower(before, after, None, 0.0, _power(enough, _ENOUGH, _ENOUGH))


def power_of_baseline(tests: Iterable[TestPair]) -> ComparisonPower | None:
    """Return what a comparison with this BEFORE can show, with as many repeats after."""
    known = [test for test in tests if test.before]
    counts = [test.before.counts for test in known if test.before]
    counts += [check.before for test in known for check in test.checks.values()]
    return comparison_power((before, before.n) for before in counts)


def chance_to_settle(
    tests: Mapping[Key, TestPair], undecided: Collection[Key], *, both: bool
) -> float:
    """Return how often more repeats of AFTER, or of `both` sides, confirm a drop of 30 points.

    This is the mean over the `undecided` tests, given the results so far. All tests of both runs
    are given.
    """
    pairs = compared_rates(tests)
    looks = {
        rate: together(pair.looks, pair.added_before) if both else pair.looks
        for rate, pair in pairs.items()
    }
    others = kinds_of(looks.values())

    def chance(key: Key) -> float:
        """Return the chance for a test, given the results so far."""
        known = looks[key, None]
        old, new = (known.grown or (known.before,))[-1], known.after[-1]
        shares = [[0.0] * (new.n + 1) for _ in range(old.n + 1)]
        shares[old.passed][new.passed] = 1.0
        rates = large_drop(pairs[key, None].all_before)
        limit = _limit(known.design, SETTLED_LEVEL, others)
        added = new.n - known.after[0].n
        return sum(crossings(limit, known.design, shares, rates, added))

    return fmean(map(chance, undecided))


def _power(tests: Mapping[tuple[Counts, int], int], before: int, after: int) -> ComparisonPower:
    """Return the power for one of the tests, which are given with how many there are of each."""
    others = Counter[tuple[Design, Counts]]()
    for (old, n), times in tests.items():
        looks = Looks(old, (_scaled(old, n),))
        others[looks.design, looks.pooled] += times
    # The result is about one test of those that pass most often.
    design = Design(before, after, 0)
    alike = (pooled for other, pooled in others if other == design)
    others[design, max(alike, key=lambda pooled: pooled.passed)] -= 1
    kinds = frozenset((+others).items())

    def chance(rate: float) -> float:
        return power(design, 1.0, rate, RATES_LEVEL, kinds)

    rates = (step / _STEPS for step in range(_STEPS - 1, -1, -1))
    found = next((rate for rate in rates if chance(rate) >= OFTEN), None)
    return ComparisonPower(before, after, found, chance(0.7))


def _scaled(counts: Counts, n: int) -> Counts:
    return Counts(round(n * counts.passed / counts.n), n)


def power(
    design: Design, before: float, after: float, level: float, others: Kinds = frozenset()
) -> float:
    """Return how often `confirmed_drops` confirms that one test fell between two pass rates.

    `others` are the tests that are compared with it, as they came out or are expected to: they do
    not change. Where repeats may be added, it is the chance that any look confirms the drop.
    Computed over all outcomes, and a lower bound: tests that drop together help each other.
    """
    new = binomial(design.after, after)
    shares = [[x * y for y in new] for x in binomial(design.before, before)]
    limit = _limit(design, level, others)
    return sum(crossings(limit, design, shares, (before, after)))


@lru_cache(maxsize=256)
def _limit(design: Design, level: float, others: Kinds) -> float:
    """Return the largest of Fisher's p-values at which a test is believed, beside the others."""

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
