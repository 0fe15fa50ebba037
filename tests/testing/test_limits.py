"""How the server counts requests."""

from __future__ import annotations

import pytest

from kindlm.testing.faults import SlidingWindow, TokenBucket


def taken(limit, moments):
    return [limit.take(moment) for moment in moments]


def test_a_window_counts_the_last_minute():
    window = SlidingWindow(2)
    assert taken(window, [0.0, 10.0, 59.0, 60.0, 61.0]) == [True, True, False, True, False]
    assert window.wait_s(61.0) == 9.0


def test_a_window_is_whole_a_minute_after_the_last_request():
    window = SlidingWindow(3)
    taken(window, [0.0, 10.0])
    allowance = window.allowance(20.0)
    assert (allowance.left, allowance.limit, allowance.reset_s) == (1, 3, 50.0)


def test_a_bucket_holds_no_more_than_its_burst():
    bucket = TokenBucket(per_minute=60, burst=2)
    assert taken(bucket, [100.0, 100.0, 100.0, 101.0, 101.5]) == [True, True, False, True, False]
    assert bucket.wait_s(101.5) == pytest.approx(0.5)
    allowance = bucket.allowance(101.5)
    assert (allowance.left, allowance.limit) == (0, 2)
    assert allowance.reset_s == pytest.approx(1.5)


@pytest.mark.parametrize("limit", [SlidingWindow(0), TokenBucket(0, 1)])
def test_a_limit_of_nothing_is_reached_for_good(limit):
    limit.take(0.0)
    assert not limit.take(1000.0)
    assert limit.wait_s(1000.0) > 0
