"""Two runs as a whole."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kindlm.history.statistics import Counts, compare_paired
from kindlm.history.statistics.paired import Pair

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
    expected = stats.binomtest(lost, lost + gained, alternative="greater").pvalue
    assert found.p_worse == pytest.approx(expected)


def test_nothing_pairs() -> None:
    assert compare_paired([]) is None


def test_no_difference_is_no_evidence() -> None:
    found = compare_paired([(Counts(3, 3), Counts(3, 3)), (Counts(1, 3), Counts(2, 6))])
    assert found is not None
    assert (found.p_worse, found.p_better, found.change) == (1.0, 1.0, 0.0)


def test_more_repeats_on_a_side_need_the_tables_to_agree() -> None:
    pairs = [(Counts(3, 3), Counts(9, 10))] * 10
    found = compare_paired(pairs)
    assert found is not None
    # By signs alone it would be 2**-10; but nine of ten passes fit three of three well.
    chances = [stats.hypergeom(13, 12, 3).pmf(x) for x in (2, 3)]
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
    assert found.p_worse == pytest.approx(stats.norm.sf(z), rel=0.01, abs=1e-12)


def test_the_mean_change_has_students_interval_over_tests() -> None:
    pairs = [(Counts(4, 4), Counts(k, 4)) for k in (4, 3, 2, 3)]
    found = compare_paired(pairs)
    assert found is not None
    changes = [0.0, -0.25, -0.5, -0.25]
    expected = stats.t.interval(0.95, 3, loc=-0.25, scale=stats.sem(changes))
    assert found.interval == pytest.approx(expected)
