"""The interval of kappa holds its level, and few reviews never pass for certainty."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kindlm.history.reviews import Agreement


def test_full_agreement_of_few_is_not_certain() -> None:
    few, many = Agreement(5, 0, 0, 5).interval, Agreement(50, 0, 0, 50).interval
    assert few is not None
    assert many is not None
    assert few[0] < 0.6 < many[0]
    assert few[1] == many[1] == 1.0


def test_the_interval_holds_the_estimate_and_stays_in_bounds() -> None:
    for cells in [(20, 3, 2, 15), (1, 9, 9, 1), (30, 0, 3, 0), (0, 5, 5, 0)]:
        found = Agreement(*cells)
        low, high = found.interval or (9.0, -9.0)
        assert found.kappa is not None
        assert -1 <= low <= found.kappa <= high <= 1


def test_without_a_kappa_there_is_none() -> None:
    assert Agreement(7, 0, 0, 0).interval is None
    assert Agreement(7, 0, 0, 0).needed is None


@pytest.mark.parametrize(
    ("kappa", "rate", "n"), [(0.3, 0.5, 20), (0.6, 0.75, 60), (0.6, 0.5, 20), (0.8, 0.75, 20)]
)
def test_the_level_holds(kappa: float, rate: float, n: int) -> None:
    dice = random.Random(f"{kappa} {rate} {n}")
    chance = rate * (1 - rate)
    weights = [
        rate**2 + kappa * chance,
        chance * (1 - kappa),
        chance * (1 - kappa),
        (1 - rate) ** 2 + kappa * chance,
    ]
    missed = too_high = drawn = 0
    for _ in range(800):
        cells = Counter(dice.choices(range(4), weights, k=n))
        found = Agreement(*(cells[place] for place in range(4)))
        interval = found.interval
        if interval is None:
            continue
        drawn += 1
        missed += not interval[0] <= kappa <= interval[1]
        too_high += interval[0] > kappa
    assert missed / drawn < 0.08
    assert too_high / drawn < 0.045, "a judge is not trusted that should not be"


def test_as_many_more_reviews_as_are_needed_decide() -> None:
    few = Agreement(18, 2, 1, 9)
    assert few.needed
    assert few.needed < 60
    as_many_thrice_over = Agreement(54, 6, 3, 27)
    low, _ = as_many_thrice_over.interval or (0.0, 0.0)
    assert low >= 0.6
    assert as_many_thrice_over.needed == 0


def test_a_judge_as_good_as_the_limit_is_never_reported() -> None:
    assert Agreement(40, 10, 10, 40).needed is None
