"""Intervals and exact tests: of one test, of many, and of two runs as a whole."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction
from itertools import combinations, product
from math import comb
from statistics import fmean

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from kindlm.history.diff.power import power
from kindlm.history.statistics import (
    flakiness,
    mean_interval,
    pass_at,
    pass_hat,
    rate_difference_interval,
    wilson_interval,
)
from kindlm.history.statistics.pass_rates import (
    Design,
    Looks,
    confirmed_drops,
    pass_rate_drop,
    repeats_needed,
)
from kindlm.history.statistics.tables import (
    Counts,
    DiscreteP,
    Pair,
    compare_paired,
    discrete_discoveries,
    fisher_drop,
    score_drop,
    score_repeats_needed,
)


@pytest.mark.parametrize(
    ("after", "before", "low", "high"),
    [
        # R. G. Newcombe, "Interval estimation for the difference between independent proportions",
        # Statistics in Medicine 17 (1998), table II, method 10.
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((10, 10), (0, 10), 0.6075, 1.0000),
    ],
)
def test_known_differences(
    after: tuple[int, int], before: tuple[int, int], low: float, high: float
) -> None:
    assert rate_difference_interval(before, after) == pytest.approx((low, high), abs=0.0001)


def test_a_side_without_repeats_has_no_difference() -> None:
    assert rate_difference_interval((0, 0), (1, 2)) is None


@pytest.mark.parametrize("n", [2, 10, 101, 300])
def test_the_interval_of_a_mean_is_students(n: int) -> None:
    values = [(i * 37 % 101) / 100 for i in range(n)]
    expected = scipy.stats.t.interval(
        0.95, n - 1, loc=sum(values) / n, scale=scipy.stats.tstd(values) / n**0.5
    )
    assert mean_interval(values) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("n", "level"), [(2, 0.5), (10, 0.8), (101, 0.99), (150, 0.9)])
def test_the_interval_of_a_mean_may_be_surer_or_less_sure(n: int, level: float) -> None:
    values = [float(number % 7) for number in range(n)]
    expected = scipy.stats.t.interval(
        level, n - 1, loc=fmean(values), scale=scipy.stats.sem(values)
    )
    assert mean_interval(values, level) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("level", [0.5, 0.99])
@pytest.mark.parametrize(("passed", "n"), [(0, 4), (3, 4), (37, 90)])
def test_so_may_that_of_a_rate(passed: int, n: int, level: float) -> None:
    expected = scipy.stats.binomtest(passed, n).proportion_ci(level, method="wilson")
    assert wilson_interval(passed, n, level) == pytest.approx((expected.low, expected.high))


def test_one_value_has_no_interval() -> None:
    assert mean_interval([1.0]) is None


def test_values_without_spread_have_an_interval_without_width() -> None:
    assert mean_interval([0.5, 0.5]) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # E. B. Wilson's interval without continuity correction, as in R. G. Newcombe, "Two-sided
        # confidence intervals for the single proportion", Statistics in Medicine 17 (1998),
        # table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_known_values(successes: int, n: int, low: float, high: float) -> None:
    found = wilson_interval(successes, n)
    assert found is not None
    assert found == pytest.approx((low, high), abs=0.00005)


def test_nothing_observed_has_no_interval() -> None:
    assert wilson_interval(0, 0) is None


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_rate_and_mirrors(case: tuple[int, int]) -> None:
    successes, n = case
    found, mirrored = wilson_interval(successes, n), wilson_interval(n - successes, n)
    assert found is not None
    assert mirrored is not None
    assert 0 <= found[0] <= successes / n <= found[1] <= 1
    assert found == pytest.approx((1 - mirrored[1], 1 - mirrored[0]))


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


@pytest.mark.parametrize("n", [600, 2_000])
def test_with_very_many_repeats_the_p_value_is_fishers(n: int) -> None:
    before, after = Counts(n - 20, n), Counts(n - 45, n)
    assert _drop(before, after) == fisher_drop(before, after)
    assert confirmed_drops([Looks(before, (after,))], 0.025) == [True]
    looked_again = Looks(before, (after, Counts(n - 45, n + 1)), more=3)
    assert pass_rate_drop(looked_again) == pytest.approx(4 * looked_again.smallest_p)


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


_STABLE = Looks(Counts(3, 3), (Counts(3, 3),))
_BROKEN = Looks(Counts(3, 3), (Counts(0, 3),))
_FLAKY = Looks(Counts(2, 3), (Counts(1, 3),))


def test_tests_that_always_pass_cost_no_power() -> None:
    assert confirmed_drops([_BROKEN, *[_STABLE] * 500], 0.025) == [True] + [False] * 500


def test_flaky_tests_make_three_repeats_too_few() -> None:
    assert not any(confirmed_drops([_BROKEN, *[_FLAKY] * 5], 0.025))


def test_many_drops_support_each_other() -> None:
    assert confirmed_drops([*[_BROKEN] * 8, _FLAKY], 0.025) == [True] * 8 + [False]


def test_a_drop_that_could_be_chance_is_not_confirmed_by_others_beside_it() -> None:
    clear, weak = Looks(Counts(5, 5), (Counts(0, 5),)), Looks(Counts(15, 20), (Counts(10, 20),))
    assert confirmed_drops([*[clear] * 9, weak], 0.05) == [True] * 9 + [False]


def test_a_drop_has_to_convince_by_itself() -> None:
    weak = Looks(Counts(2, 2), (Counts(0, 2),))
    assert not any(confirmed_drops([weak] * 20, 0.025))


def test_a_drop_that_does_not_convince_supports_no_other() -> None:
    # It may be looked at again and again, so its p-value is worth less.
    unsure = _BROKEN._replace(more=100)
    assert confirmed_drops([_BROKEN], 0.025) == [True]
    assert confirmed_drops([_BROKEN, unsure], 0.025) == [False, False]


def test_nothing_to_test() -> None:
    assert confirmed_drops([], 0.05) == []
    assert discrete_discoveries([], 0.05) == []
    assert discrete_discoveries([DiscreteP(1.0, (1.0,))], 0.05) == [False]


_p_values = st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=8)


@given(_p_values)
def test_more_is_never_found_than_benjamini_and_hochberg_allow(values: list[float]) -> None:
    # All tests alike, each p-value attainable by each: there is nothing to gain.
    support = tuple(sorted({*values, 1.0}))
    found = discrete_discoveries([DiscreteP(value, support) for value in values], 0.2)
    ordered, m = sorted(values), len(values)
    allowed = max((k for k, p in enumerate(ordered, 1) if p * m <= 0.2 * k), default=0)
    assert sum(found) <= allowed


def test_tests_that_cannot_get_there_do_not_count() -> None:
    clear = DiscreteP(0.01, (0.01, 0.2, 1.0))
    coarse = DiscreteP(0.6, (0.6, 1.0))
    assert discrete_discoveries([clear, *[coarse] * 50], 0.02) == [True] + [False] * 50
    fine = DiscreteP(0.6, (0.01, 0.6, 1.0))
    assert not any(discrete_discoveries([clear, *[fine] * 50], 0.02))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_the_order_of_the_tests_does_not_matter(order: tuple[int, ...]) -> None:
    tests = [_BROKEN, _STABLE, _STABLE]
    found = confirmed_drops([tests[i] for i in order], 0.025)
    assert [found[order.index(i)] for i in range(3)] == [True, False, False]


_side = st.builds(Counts, st.integers(0, 4), st.just(4))


@given(st.lists(st.tuples(_side, _side), min_size=1, max_size=8))
def test_all_choices_of_signs_are_counted(pairs: list[Pair]) -> None:
    drops = [before.passed - after.passed for before, after in pairs]
    sums = [
        sum(sign * drop for sign, drop in zip(signs, drops, strict=True))
        for signs in product((-1, 1), repeat=len(drops))
    ]
    found = compare_paired(pairs)
    assert found is not None
    assert found.p_worse == pytest.approx(sum(s >= sum(drops) for s in sums) / len(sums))
    assert found.p_better == pytest.approx(sum(s <= sum(drops) for s in sums) / len(sums))
    assert found.change == pytest.approx(-sum(drops) / 4 / len(pairs))


@pytest.mark.parametrize(("lost", "gained"), [(5, 0), (6, 1), (3, 3), (0, 4)])
def test_single_repeats_give_mcnemars_test(lost: int, gained: int) -> None:
    passed, failed = Counts(1, 1), Counts(0, 1)
    pairs = [(passed, failed)] * lost + [(failed, passed)] * gained + [(passed, passed)] * 7
    found = compare_paired(pairs)
    assert found is not None
    expected = scipy.stats.binomtest(lost, lost + gained, alternative="greater").pvalue
    assert found.p_worse == pytest.approx(expected)


def test_nothing_pairs() -> None:
    assert compare_paired([]) is None


def test_no_difference_is_no_evidence() -> None:
    found = compare_paired([(Counts(3, 3), Counts(3, 3)), (Counts(1, 3), Counts(2, 6))])
    assert found is not None
    assert (found.p_worse, found.p_better, found.change) == (1.0, 1.0, 0.0)


def test_changes_that_cancel_out_are_no_change() -> None:
    changes = [(10, 2), (9, 7), (0, 10)]
    found = compare_paired([(Counts(old, 10), Counts(new, 10)) for old, new in changes])
    assert found is not None
    assert found.change == 0


def test_more_repeats_on_a_side_need_the_tables_to_agree() -> None:
    pairs = [(Counts(3, 3), Counts(9, 10))] * 10
    found = compare_paired(pairs)
    assert found is not None
    # By signs alone it would be 2**-10; but nine of ten passes fit three of three well.
    chances = [scipy.stats.hypergeom(13, 12, 3).pmf(x) for x in (2, 3)]
    assert found.p_worse == pytest.approx(chances[1] ** 10)
    assert found.p_worse > 0.05


def test_large_runs_are_close_to_the_count_of_all_signs() -> None:
    # Unlike numbers of repeats have a large common denominator.
    sizes = (7, 11, 13, 17, 19, 23)
    pairs = [
        (Counts(n * 8 // 10, n), Counts(n * (6 + i % 4) // 10, n)) for i in range(60) for n in sizes
    ]
    found = compare_paired(pairs)
    assert found is not None
    worse = [float(b.passed / b.n - a.passed / a.n) for b, a in pairs]
    z = sum(worse) / sum(drop**2 for drop in worse) ** 0.5
    assert found.p_worse == pytest.approx(scipy.stats.norm.sf(z), rel=0.01, abs=1e-12)


_unlike = st.integers(1, 60).flatmap(
    lambda n: st.tuples(st.builds(Counts, st.integers(0, n), st.just(n)), st.integers(0, n))
)


@given(st.lists(_unlike, min_size=1, max_size=8))
def test_few_tests_are_counted_whatever_their_repeats(sides: list[tuple[Counts, int]]) -> None:
    # Their repeats may have a very large common denominator.
    pairs = [(before, Counts(after, before.n)) for before, after in sides]
    drops = [Fraction(*before) - Fraction(*after) for before, after in pairs]
    sums = [
        sum((sign * drop for sign, drop in zip(signs, drops, strict=True)), Fraction(0))
        for signs in product((-1, 1), repeat=len(drops))
    ]
    found = compare_paired(pairs)
    assert found is not None
    assert found.p_worse == pytest.approx(sum(s >= sum(drops) for s in sums) / len(sums))
    assert found.p_better == pytest.approx(sum(s <= sum(drops) for s in sums) / len(sums))


def test_six_losses_can_be_no_rarer_than_six_coins_that_fall_alike() -> None:
    repeats = {29: 3, 31: 2, 37: 4, 41: 1, 43: 2, 47: 3}
    found = compare_paired([(Counts(n, n), Counts(n - k, n)) for n, k in repeats.items()])
    assert found is not None
    assert found.p_worse == 1 / 64


def test_a_few_large_losses_among_many_small_gains_are_not_taken_for_normal() -> None:
    losses = [(Counts(1, 1), Counts(0, 1))] * 6
    gains = [(Counts(n - 1, n), Counts(n, n)) for n in range(61, 101)]
    found = compare_paired([*losses, *gains])
    assert found is not None
    # The gains are less than one loss together: it is all about the signs of the six.
    assert found.p_worse == pytest.approx(1 / 64, rel=1e-3)


@pytest.mark.parametrize(("tests", "repeats"), [(5_000, 2), (2_000, 5)])
def test_what_is_counted_when_everything_fails_grows_with_the_tests_alone(
    tests: int, repeats: int
) -> None:
    pairs = [(Counts(repeats, repeats), Counts(0, repeats))] * tests
    tracemalloc.start()
    found = compare_paired(pairs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is not None
    assert found.p_worse < 1e-300
    # One number for each sum that there can be, and not one with a digit for each test.
    assert peak < 500 * tests


@pytest.mark.parametrize(("lost", "of"), [(253, 400), (2_360, 4_000)])
def test_tables_of_many_unlike_sides_are_compared_together(lost: int, of: int) -> None:
    pairs = [(Counts(3, 3), Counts(3, 4))] * lost + [(Counts(2, 3), Counts(4, 4))] * (of - lost)
    found = compare_paired(pairs)
    assert found is not None
    # Six of seven pass in each: the one that fails is after in four of seven cases.
    tables = scipy.stats.binom(of, 4 / 7).sf(lost - 1)
    signs = (lost / 4 - (of - lost) / 3) / (lost / 16 + (of - lost) / 9) ** 0.5
    assert found.p_worse == pytest.approx(max(tables, scipy.stats.norm.sf(signs)), rel=0.05)
    assert 0.001 < found.p_worse < 0.1
    assert found.p_better > 0.9


def test_the_mean_change_has_students_interval_over_tests() -> None:
    pairs = [(Counts(4, 4), Counts(k, 4)) for k in (4, 3, 2, 3)]
    found = compare_paired(pairs)
    assert found is not None
    changes = [0.0, -0.25, -0.5, -0.25]
    expected = scipy.stats.t.interval(0.95, 3, loc=-0.25, scale=scipy.stats.sem(changes))
    assert found.interval == pytest.approx(expected)


def test_the_interval_has_a_width_where_all_tests_moved_alike() -> None:
    found = compare_paired([(Counts(3, 3), Counts(0, 3))] * 8)
    assert found is not None
    assert found.interval == pytest.approx((-1.0, -0.805), abs=0.001)


@pytest.mark.parametrize(
    ("before", "after", "n"), [(0.95, 0.05, 3), (0.98, 0.9, 3), (0.99, 0.99, 5), (0.7, 0.4, 3)]
)
def test_the_interval_holds_its_level_at_the_edges(before: float, after: float, n: int) -> None:
    dice = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        old, new = (dice.binomial(n, rate, 8).tolist() for rate in (before, after))
        pairs = [(Counts(k, n), Counts(j, n)) for k, j in zip(old, new, strict=True)]
        found = compare_paired(pairs)
        assert found is not None
        assert found.interval is not None
        held += found.interval[0] <= after - before <= found.interval[1]
    assert held / 400 >= 0.94
