"""Exact tests of two groups, checked against scipy."""

from __future__ import annotations

from itertools import combinations
from math import comb

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from kindlm.history.statistics.pass_rates import Looks, pass_rate_drop
from kindlm.history.statistics.tables import Counts, fisher_drop, fisher_mid_p, score_drop

_counts = st.integers(1, 12).flatmap(lambda n: st.builds(Counts, st.integers(0, n), st.just(n)))


def _drop(before: Counts, after: Counts) -> float:
    return pass_rate_drop(Looks(before, (after,)))


def _table(before: Counts, after: Counts) -> list[list[int]]:
    return [
        [before.passed, after.passed],
        [before.n - before.passed, after.n - after.passed],
    ]


@given(_counts, _counts)
def test_fisher_is_that_of_scipy(before: Counts, after: Counts) -> None:
    expected = scipy.stats.fisher_exact(_table(before, after), alternative="greater").pvalue
    assert fisher_drop(before, after) == pytest.approx(expected)


@given(_counts, _counts)
def test_the_mid_p_counts_the_outcome_by_half(before: Counts, after: Counts) -> None:
    both = before.passed + after.passed
    own = scipy.stats.hypergeom(before.n + after.n, both, before.n).pmf(before.passed)
    assert fisher_mid_p(before, after) == pytest.approx(fisher_drop(before, after) - own / 2)


@pytest.mark.parametrize(
    ("before", "after"),
    [((3, 3), (0, 3)), ((5, 5), (1, 5)), ((10, 10), (6, 10)), ((9, 10), (4, 10)), ((4, 4), (3, 9))],
)
def test_the_p_value_of_a_drop_is_boschloos(
    before: tuple[int, int], after: tuple[int, int]
) -> None:
    old, new = Counts(*before), Counts(*after)
    expected = scipy.stats.boschloo_exact(_table(old, new), alternative="greater", n=256).pvalue
    assert _drop(old, new) == pytest.approx(expected, rel=1e-3)


@given(_counts, _counts)
def test_the_p_value_is_never_above_fishers(before: Counts, after: Counts) -> None:
    assert _drop(before, after) <= fisher_drop(before, after) + 1e-9


@pytest.mark.parametrize("level", [0.01, 0.05])
@pytest.mark.parametrize(("n_before", "n_after"), [(3, 3), (3, 10), (7, 4)])
def test_a_drop_is_seen_by_chance_no_more_often_than_it_says(
    n_before: int, n_after: int, level: float
) -> None:
    tables = [
        (passed, other)
        for passed in range(n_before + 1)
        for other in range(n_after + 1)
        if _drop(Counts(passed, n_before), Counts(other, n_after)) <= level
    ]
    for rate in (step / 50 for step in range(1, 50)):
        chance = sum(
            scipy.stats.binom.pmf(passed, n_before, rate)
            * scipy.stats.binom.pmf(other, n_after, rate)
            for passed, other in tables
        )
        assert chance <= level + 1e-9


def test_scores_without_ties_are_those_of_scipy() -> None:
    before, after = [0.91, 0.85, 0.8, 0.95], [0.7, 0.83, 0.6, 0.5, 0.2]
    expected = scipy.stats.mannwhitneyu(before, after, alternative="greater", method="exact").pvalue
    assert score_drop(before, after).value == pytest.approx(expected)


_scores = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=5)


@given(_scores, _scores)
def test_scores_with_ties_count_all_ways_to_deal_them_out(
    before: list[float], after: list[float]
) -> None:
    pooled = [*before, *after]
    ranks = scipy.stats.rankdata(pooled)
    seen = sum(ranks[: len(before)])
    ways = [sum(chosen) for chosen in combinations(ranks, len(before))]
    assert len(ways) == comb(len(pooled), len(before))
    found = score_drop(before, after)
    assert found.value == pytest.approx(sum(way >= seen for way in ways) / len(ways))
    assert found.value in found.attainable
    assert list(found.attainable) == sorted(found.attainable)


def test_many_scores_still_give_an_answer() -> None:
    before, after = [0.9 + i / 10_000 for i in range(200)], [0.5 + i / 10_000 for i in range(3)]
    assert score_drop(before, after).value < 0.001


def test_no_scores_say_nothing() -> None:
    assert score_drop([], [0.5]).value == 1.0
