"""Which drops a comparison can confirm for one test that always passed, among other tests."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from math import exp2
from statistics import fmean

from kindlm.dataclass import dataclass, replace
from kindlm.history.diff.evidence import RATES_LEVEL, SETTLED_LEVEL, compared_rates
from kindlm.history.diff.evidence_values import Key, TestPair
from kindlm.history.statistics import pass_rates
from kindlm.history.statistics.pass_rates import MOST_REPEATS, Design, Kinds
from kindlm.history.statistics.tables import OFTEN, Counts, pooled

_STEPS = 20
_ENOUGH = 10
"""Repeats of each run that are suggested if nothing can be confirmed."""

_STEPS_TO_HALF = 500
"""The steps of a p-value to its half, in the search for a limit; no limit is below 2**-40."""


@dataclass(frozen=True, slots=True)
class ComparisonPower:
    """The power of a comparison for a test that always passed, given the repeats in each run.

    A drop to the pass rate `found`, in steps of 5 points, is confirmed in 4 of 5 comparisons, a
    drop to 70 % in the share `thirty` of them. If `found` is None, no drop can be confirmed, and
    `enough` is the power with more repeats.
    """

    before: int
    after: int
    found: float | None
    thirty: float
    enough: ComparisonPower | None = None


def comparison_power(tests: Iterable[tuple[Counts, int]]) -> ComparisonPower | None:
    """Return the power of a comparison, given the counts of tests before and their repeats after.

    It is that for tests with the most common numbers of repeats; None without tests. Tests with
    more repeats than `MOST_REPEATS` do not count.
    """
    compared = Counter(
        (before, n) for before, n in tests if before.n and n and before.n + n <= MOST_REPEATS
    )
    if not compared:
        return None
    designs, enough = Counter[tuple[int, int]](), Counter[tuple[Counts, int]]()
    for (old, n), times in compared.items():
        designs[old.n, n] += times
        enough[_scaled(old, _ENOUGH), _ENOUGH] += times
    shown = _power(compared, *designs.most_common(1)[0][0])
    if shown.found is None:
        shown = replace(shown, enough=_power(enough, _ENOUGH, _ENOUGH))
    return shown


def chance_to_settle(
    tests: Mapping[Key, TestPair], undecided: Collection[Key], *, both: bool
) -> float:
    """Return how often more repeats confirm a drop of 30 points, the mean over `undecided` tests.

    They are repeats of AFTER, or of `both` sides. Pass all tests of both runs.
    """
    pairs = compared_rates(tests)
    looks = {
        rate: pass_rates.together(pair.looks, pair.added_before) if both else pair.looks
        for rate, pair in pairs.items()
    }
    others = pass_rates.kinds_of(looks.values())

    def chance(key: Key) -> float:
        known = looks[key, None]
        old, new = (known.grown or (known.before,))[-1], known.after[-1]
        shares = [[0.0] * (new.n + 1) for _ in range(old.n + 1)]
        shares[old.passed][new.passed] = 1.0
        rates = pass_rates.large_drop(pairs[key, None].all_before)
        limit = _limit(known.design, SETTLED_LEVEL, others)
        added = new.n - known.after[0].n
        return sum(pass_rates.crossings(limit, known.design, shares, rates, added))

    return fmean(map(chance, undecided))


def _power(tests: Mapping[tuple[Counts, int], int], before: int, after: int) -> ComparisonPower:
    others = Counter[tuple[Design, Counts]]()
    for (old, n), times in tests.items():
        others[Design(old.n, n, 0), pooled((old, _scaled(old, n)))] += times
    # The result is that for one of the tests that pass most often.
    design = Design(before, after, 0)
    others[design, max(counts for other, counts in others if other == design)] -= 1
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

    `others` are the tests beside it, with their results; they do not change. If repeats may be
    added, any look may confirm the drop. The result is computed over all outcomes. It is a lower
    bound, since tests that drop together help each other.
    """
    new = pass_rates.binomial(design.after, after)
    shares = [[x * y for y in new] for x in pass_rates.binomial(design.before, before)]
    limit = _limit(design, level, others)
    return sum(pass_rates.crossings(limit, design, shares, (before, after)))


@lru_cache(maxsize=256)
def _limit(design: Design, level: float, others: Kinds) -> float:
    """Return the largest of Fisher's p-values that confirms a test among the others."""

    def confirms(step: int) -> bool:
        p = exp2(-step / _STEPS_TO_HALF)
        own = pass_rates.worst_chance(p, design)
        return own <= level and own + pass_rates.expected_by_chance(p, others) <= level

    steps = range(40 * _STEPS_TO_HALF)
    return exp2(-bisect_left(steps, True, key=confirms) / _STEPS_TO_HALF)
