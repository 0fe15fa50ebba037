"""What repeats of one test tell, and how many are needed."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.history.diff.power import power
from kindlm.history.repeat_statistics import flakiness, pass_at, pass_hat
from kindlm.history.statistics.pass_rates import Design, repeats_needed
from kindlm.history.statistics.tables import Counts, score_repeats_needed


@given(st.data())
def test_chances_of_k_tries_count_all_choices_of_repeats(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 7))
    passed, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    choices = list(combinations([True] * passed + [False] * (n - passed), k))
    assert pass_at(passed, n)[k - 1] == pytest.approx(sum(map(any, choices)) / len(choices))
    assert pass_hat(passed, n)[k - 1] == pytest.approx(sum(map(all, choices)) / len(choices))


def test_flakiness_within_runs_and_between() -> None:
    found = flakiness([Counts(3, 3), Counts(2, 3), Counts(0, 0), Counts(3, 3), Counts(3, 3)])
    # In one run of four, two of the three pairs of repeats differ.
    assert found.within == pytest.approx(2 / 12)
    assert found.between == pytest.approx(2 / 3)


def test_one_execution_has_no_flakiness() -> None:
    found = flakiness([Counts(1, 1)])
    assert (found.within, found.between) == (None, None)


def test_single_repeats_show_flakiness_between_runs_alone() -> None:
    found = flakiness([Counts(1, 1), Counts(0, 1), Counts(1, 1)])
    assert (found.within, found.between) == (None, 1.0)


@pytest.mark.parametrize(
    ("before", "after", "needed"), [(1.0, 0.0, 3), (1.0, 0.5, 10), (0.9, 0.6, 30)]
)
def test_repeats_that_show_a_drop(before: float, after: float, needed: int) -> None:
    assert repeats_needed(before, after, 0.03) == needed
    assert power(Design(needed, needed, 0), before, after, 0.03) >= 0.8
    assert power(Design(needed - 1, needed - 1, 0), before, after, 0.03) < 0.8


def test_small_drops_need_many_repeats() -> None:
    # (1.6449 √(2 · 0.75 · 0.25) + 0.8416 √(0.16 + 0.21))² / 0.01
    assert repeats_needed(0.8, 0.7, 0.05) == 231
    assert repeats_needed(0.5, 0.9, 0.05) is None


def test_repeats_for_scores() -> None:
    assert score_repeats_needed([0.9, 0.9, 0.9], [0.2, 0.2, 0.2], 0.01) == 5
    assert score_repeats_needed([0.9, 0.7], [0.8, 0.6], 0.01) == 41
    assert score_repeats_needed([0.9], [0.6], 0.01) is None
    assert score_repeats_needed([0.6, 0.7], [0.7, 0.8], 0.01) is None
