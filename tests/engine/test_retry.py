"""Waits between tries, as a pure function."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kindlm.engine.calls import MAX_DELAY_S, retry_delay


def test_the_wait_doubles_with_each_try():
    delays = [retry_delay(attempt, None, 0.5) for attempt in range(4)]
    assert delays == [0.25, 0.5, 1.0, 2.0]


def test_what_the_provider_says_is_taken_as_it_is():
    assert retry_delay(5, 7.5, 0.9) == 7.5


@given(st.integers(0, 200), st.floats(0, 1, exclude_max=True))
def test_no_wait_is_longer_than_the_longest_or_shorter_than_half_the_base(attempt, random):
    assert 0.25 <= retry_delay(attempt, None, random) <= MAX_DELAY_S
