"""Two runs as a whole."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from kindlm.history.statistics.tables import Counts, Pair, compare_paired

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
