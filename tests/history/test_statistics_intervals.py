"""Intervals of rates, of differences and of means."""

from __future__ import annotations

from statistics import fmean

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from kindlm.history.statistics import (
    mean_interval,
    rate_difference_interval,
    wilson_interval,
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
