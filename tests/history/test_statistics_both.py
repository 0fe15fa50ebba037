"""Repeats that are added to both sides: how often they confirm, and how often they are wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import comb
from typing import NamedTuple

import numpy as np
import pytest

from kindlm.history.diff.evidence import judge_pair, settle
from kindlm.history.diff.evidence_values import Side, Strength, TestPair
from kindlm.history.diff.power import chance_to_settle
from kindlm.history.statistics.pass_rates import (
    Looks,
    Settlement,
    _cleared,
    pass_rate_drop,
    together,
)
from kindlm.history.statistics.tables import Counts, fisher_drop
from kindlm.outcome import Status


def _side(passed: int, n: int) -> Side:
    return Side(Counts(passed, n), Status.PASSED if passed == n else Status.FAILED)


def _pair(before: int, after: int, n: int) -> TestPair:
    return TestPair(_side(before, n), _side(after, n))


class Settled(NamedTuple):
    confirmed: set[int]
    settlements: dict[int, Settlement]


def _settle(
    dice: np.random.Generator, before: list[float], after: list[float], n: int, *, both: bool
) -> Settled:
    """Add five repeats at a time to each undecided test, on both sides or on one."""
    old, new = dice.binomial(n, before), dice.binomial(n, after)
    tests = {i: _pair(int(old[i]), int(new[i]), n) for i in range(len(before))}
    while True:
        known = settle(tests, both=both)
        found = judge_pair(tests).tests
        sure = {
            key
            for key, test in found.items()
            if test.change == "regressed" and test.strength is Strength.CONFIRMED
        }
        open_tests = [key for key, each in known.items() if each is Settlement.UNDECIDED]
        if not set(open_tests) - sure:
            return Settled(sure, known)
        for key in set(open_tests) - sure:
            pair = tests[key]
            added = Counts(int(dice.binomial(5, after[key])), 5)
            pair = replace(pair, added=(*pair.added, added))
            if both:
                added = Counts(int(dice.binomial(5, before[key])), 5)
                pair = replace(pair, added_before=(*pair.added_before, added))
            tests[key] = pair


def test_the_p_value_counts_all_courses_that_repeats_of_both_sides_may_take() -> None:
    looks = Looks(Counts(2, 2), (Counts(1, 2), Counts(2, 7)), 5, (Counts(2, 2), Counts(6, 7)))
    smallest = looks.smallest_p
    found: dict[int, float] = {}
    for first in product(range(3), range(3)):
        for more in product(range(6), range(6)):
            old, new = (Counts(x, 2) for x in first)
            last = (Counts(x + y, 7) for x, y in zip(first, more, strict=True))
            if min(fisher_drop(old, new), fisher_drop(*last)) <= smallest:
                ways = [comb(2, x) for x in first] + [comb(5, y) for y in more]
                passed = sum(first) + sum(more)
                found[passed] = found.get(passed, 0.0) + float(np.prod(ways))
    worst = max(
        sum(ways * rate**passed * (1 - rate) ** (14 - passed) for passed, ways in found.items())
        for rate in (step / 1000 for step in range(1, 1000))
    )
    assert pass_rate_drop(looks) == pytest.approx(worst, rel=1e-4)


def test_looks_are_taken_when_both_sides_have_equally_many_more() -> None:
    after = Looks(Counts(3, 3), tuple(Counts(2, n) for n in range(3, 17)), 50)
    before = [Counts(1, 1)] * 11
    assert together(after, before) == Looks(
        Counts(3, 3),
        (Counts(2, 3), Counts(2, 8), Counts(2, 13)),
        50,
        (Counts(3, 3), Counts(8, 8), Counts(13, 13)),
    )
    assert together(after, []).grown == (Counts(3, 3),)


@pytest.mark.parametrize("n", [1, 5])
def test_repeating_both_sides_keeps_the_error_rate(n: int) -> None:
    dice = np.random.default_rng(1)
    flaky = list(np.linspace(0.3, 1.0, 10))
    found = [_settle(dice, flaky, flaky, n, both=True) for _ in range(4)]
    assert not any(run.confirmed for run in found)


def test_repeating_both_sides_finds_what_repeats_of_one_side_can_not() -> None:
    dice = np.random.default_rng(2)
    before, after = [0.9] * 5, [0.6] * 5
    alone, both = (
        [len(_settle(dice, before, after, 10, both=sides).confirmed) for _ in range(3)]
        for sides in (False, True)
    )
    assert sum(alone) / 15 < 0.4
    assert sum(both) / 15 > 0.7


def test_the_chance_that_is_reported_is_a_lower_bound() -> None:
    tests = {i: _pair(9, 6, 10) for i in range(5)}
    alone, both = (chance_to_settle(tests, range(5), both=sides) for sides in (False, True))
    assert alone < 0.3
    assert 0.5 < both < 1
    dice = np.random.default_rng(3)
    found = 0
    for _ in range(4):
        course = dict(tests)
        for key, pair in course.items():
            # By how far such a drop is: from 9 of 10 to 30 points below.
            old, new = dice.random(50) < 0.886, dice.random(50) < 0.586
            course[key] = replace(
                pair,
                added=tuple(Counts(int(x), 1) for x in new),
                added_before=tuple(Counts(int(x), 1) for x in old),
            )
        known = settle(course, both=True)
        found += sum(each is Settlement.CONFIRMED for each in known.values())
    assert found / 20 >= both - 0.1


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("n", [3, 10])
@pytest.mark.parametrize("rate", [0.6, 0.95])
def test_at_most_one_of_ten_suspected_tests_that_dropped_by_30_points_is_cleared(
    rate: float, n: int, both: bool
) -> None:
    """Computed over all courses, whatever else may end them."""

    def ways(of: int, p: float) -> list[float]:
        return [comb(of, k) * p**k * (1 - p) ** (of - k) for k in range(of + 1)]

    dropped = rate - 0.3
    ups, downs = ways(5 if both else 0, rate), ways(5, dropped)
    state = {
        (old, new): x * y
        for old, x in enumerate(ways(n, rate))
        for new, y in enumerate(ways(n, dropped))
        if new < old
    }
    suspected, cleared = sum(state.values()), 0.0
    for more in range(0, 51, 5):
        following: dict[tuple[int, int], float] = {}
        for (old, new), chance in state.items():
            if _cleared(Counts(old, n + (more if both else 0)), Counts(new, n + more)):
                cleared += chance
                continue
            for up, x in enumerate(ups):
                for down, y in enumerate(downs):
                    key = old + up, new + down
                    following[key] = following.get(key, 0.0) + chance * x * y
        state = following
    assert cleared / suspected <= 0.1
