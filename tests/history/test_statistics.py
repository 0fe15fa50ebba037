"""Statistics on counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.history.statistics.intervals import wilson_interval


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
