"""Which of many tests to believe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.history.statistics.pass_rates import Looks, confirmed_drops
from kindlm.history.statistics.tables import Counts, DiscreteP, discrete_discoveries

_STABLE = Looks(Counts(3, 3), (Counts(3, 3),))
_BROKEN = Looks(Counts(3, 3), (Counts(0, 3),))
_FLAKY = Looks(Counts(2, 3), (Counts(1, 3),))


def test_tests_that_always_pass_cost_no_power() -> None:
    assert confirmed_drops([_BROKEN, *[_STABLE] * 500], 0.025) == [True] + [False] * 500


def test_flaky_tests_make_three_repeats_too_few() -> None:
    assert not any(confirmed_drops([_BROKEN, *[_FLAKY] * 5], 0.025))


def test_many_drops_support_each_other() -> None:
    assert confirmed_drops([*[_BROKEN] * 8, _FLAKY], 0.025) == [True] * 8 + [False]


def test_a_drop_has_to_convince_by_itself() -> None:
    weak = Looks(Counts(2, 2), (Counts(0, 2),))
    assert not any(confirmed_drops([weak] * 20, 0.025))


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
