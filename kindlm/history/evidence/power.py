"""What a comparison of two runs can show, by how often they repeat their tests.

It is said before anything is compared, so it speaks of one test that always passed, beside the
other tests as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from kindlm.history.evidence.judging import RATES_LEVEL, SETTLED_LEVEL, compared_rates
from kindlm.history.evidence.values import Key, TestPair
from kindlm.history.statistics.pass_rates import Design, Looks
from kindlm.history.statistics.power import power, power_from_here
from kindlm.history.statistics.sequential import large_drop, together
from kindlm.history.statistics.tables import Counts

__all__ = [
    "ComparisonPower",
    "chance_to_settle",
    "comparison_power",
    "power_of_baseline",
    "power_of_pairs",
]

OFTEN = 0.8
"""A drop counts as found if 4 of 5 comparisons confirm it."""

_STEPS = 20
_ENOUGH = 10
"""Repeats of each run that are suggested where nothing can be confirmed."""


@dataclass(frozen=True, slots=True)
class ComparisonPower:
    """What can be confirmed of a test that always passed, with so many repeats in each run.

    A drop to the pass rate `found`, in steps of 5 points, is confirmed in 4 of 5 comparisons, one
    to 70 % in the share `thirty` of them. `found` is None where no drop can be confirmed; `enough`
    is then what more repeats would show.
    """

    before: int
    after: int
    found: float | None
    thirty: float
    enough: ComparisonPower | None = None


def comparison_power(tests: Iterable[tuple[Counts, int]]) -> ComparisonPower | None:
    """Return what a comparison can show, by the counts of tests before and their repeats after.

    The other tests are expected to pass as often as before. Where tests are repeated unequally
    often, it speaks of those that are repeated as most are. None if nothing is compared.
    """
    compared = [(before, n) for before, n in tests if before.n and n]
    if not compared:
        return None
    (before, after), _ = Counter((old.n, n) for old, n in compared).most_common(1)[0]
    shown = _power(compared, before, after)
    if shown.found is not None:
        return shown
    enough = [(_scaled(old, _ENOUGH), _ENOUGH) for old, _ in compared]
    return ComparisonPower(before, after, None, 0.0, _power(enough, _ENOUGH, _ENOUGH))


def power_of_pairs(tests: Mapping[Key, TestPair]) -> ComparisonPower | None:
    """Return what the comparison of two runs can show."""
    rates = compared_rates(tests).values()
    return comparison_power((pair.before, pair.after.n) for pair in rates)


def power_of_baseline(tests: Iterable[TestPair]) -> ComparisonPower | None:
    """Return what a comparison with this BEFORE can show, with as many repeats after."""
    known = [test for test in tests if test.before]
    counts = [test.before.counts for test in known if test.before]
    counts += [check.before for test in known for check in test.checks.values()]
    return comparison_power((before, before.n) for before in counts)


def chance_to_settle(
    tests: Mapping[Key, TestPair], undecided: Collection[Key], *, both: bool
) -> float:
    """Return how often further repeats of AFTER, or of `both` sides, confirm a drop of 30 points.

    The mean over the `undecided` tests, of which there is at least one, as things stand. All tests
    of both runs are given.
    """
    pairs = compared_rates(tests)
    looks = {rate: pair.looks for rate, pair in pairs.items()}
    if both:
        looks = {rate: together(each, pairs[rate].added_before) for rate, each in looks.items()}
    others = tuple(looks.values())
    return fmean(
        power_from_here(
            looks[key, None], large_drop(pairs[key, None].all_before), SETTLED_LEVEL, others
        )
        for key in undecided
    )


def _power(tests: Sequence[tuple[Counts, int]], before: int, after: int) -> ComparisonPower:
    others = [Looks(old, (_scaled(old, n),)) for old, n in tests]
    # The one test that is spoken of: of those that pass most often.
    alike = [looks for looks in others if (looks.before.n, looks.after[0].n) == (before, after)]
    others.remove(max(alike, key=lambda looks: looks.pooled.passed))
    design = Design(before, after, 0)

    def chance(rate: float) -> float:
        return power(design, 1.0, rate, RATES_LEVEL, others)

    rates = (step / _STEPS for step in range(_STEPS - 1, -1, -1))
    return ComparisonPower(
        before, after, next((r for r in rates if chance(r) >= OFTEN), None), chance(0.7)
    )


def _scaled(counts: Counts, n: int) -> Counts:
    return Counts(round(n * counts.passed / counts.n), n)
