"""Which drops a comparison can confirm for one test that always passed, among other tests."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from math import exp2
from statistics import fmean
from typing import NamedTuple

from kindlm.history.diff.evidence import RATES_LEVEL, SETTLED_LEVEL, compared_rates
from kindlm.history.diff.evidence_values import Key, TestPair
from kindlm.history.statistics import pass_rates
from kindlm.history.statistics.pass_rates import MOST_REPEATS, Design, Kinds
from kindlm.history.statistics.tables import Counts, pooled

_STEPS_TO_HALF = 500
"""The steps of a p-value to its half, in the search for a limit; no limit is below 2**-40."""


class ComparisonPower(NamedTuple):
    """What a comparison can show of a test that always passed, given the repeats in each run.

    `to_none` is whether it confirms a drop to 0 %, `thirty` how often it confirms one to 70 %.
    """

    before: int
    after: int
    to_none: bool
    thirty: float


def comparison_power(tests: Iterable[tuple[Counts, int]]) -> ComparisonPower | None:
    """Return the power of a comparison, given the counts of tests before and their repeats after.

    It is that for one of the tests that pass most often, of those with the most common numbers of
    repeats; None without tests. Tests with more repeats than `MOST_REPEATS` do not count.
    """
    others, designs = Counter[tuple[Design, Counts]](), Counter[Design]()
    for old, n in tests:
        if old.n and n and old.n + n <= MOST_REPEATS:
            design = Design(old.n, n, 0)
            designs[design] += 1
            others[design, pooled((old, Counts(round(n * old.passed / old.n), n)))] += 1
    if not designs:
        return None
    shown = designs.most_common(1)[0][0]
    others[shown, max(counts for design, counts in others if design == shown)] -= 1
    kinds = frozenset((+others).items())
    to_none, thirty = (power(shown, 1.0, rate, RATES_LEVEL, kinds) for rate in (0.0, 0.7))
    return ComparisonPower(shown.before, shown.after, to_none > 0, thirty)


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
