"""Leases: who may push for a shard, and when it goes to another worker."""

from __future__ import annotations

import pytest

from kindlm.fleet.coordinator import MOST_LOST, SILENT_S, Leases


def test_only_the_newest_lease_of_a_shard_counts() -> None:
    leases = Leases([1, 2])
    first = leases.claim(1, now=0)
    assert first == "1.1"
    assert leases.hear("1.1", now=1)
    assert leases.claim(1, now=2) == "1.2"
    assert not leases.hear("1.1", now=3)
    assert leases.hear("1.2", now=3)
    assert leases.claim(2, now=3) == "2.1"
    assert leases.live == 2


@pytest.mark.parametrize("lease", ["", "1", "1.", "1.2", "2.1", "01.1", "x.1", "1.1.1", "9.1", "²"])
def test_what_is_no_lease_of_this_run_is_not_current(lease: str) -> None:
    leases = Leases([1, 2])
    leases.claim(1, now=0)
    assert not leases.hear(lease, now=0)


def test_a_worker_that_is_silent_loses_its_shard_and_what_it_says_later_is_refused() -> None:
    leases = Leases([1])
    leases.claim(1, now=0)
    assert leases.hear("1.1", now=30)
    assert leases.silent(30 + SILENT_S) == []
    assert leases.silent(30 + SILENT_S + 0.1) == [1]
    leases.lose(1)
    assert not leases.hear("1.1", now=91)
    assert leases.silent(1_000) == []
    assert leases.claim(1, now=92) == "1.2"


def test_a_shard_that_is_lost_too_often_is_given_up() -> None:
    leases = Leases([1, 2])
    for number in range(MOST_LOST):
        assert leases.left == [1, 2]
        assert leases.claim(1, now=number) == f"1.{number + 1}"
        leases.lose(1)
    assert leases.claim(1, now=9) is None
    assert leases.left == [2]
    assert leases.is_over(1)


def test_workers_that_take_a_shard_from_one_another_do_so_only_so_often() -> None:
    leases = Leases([1])
    claimed = [leases.claim(1, now=0) for _ in range(MOST_LOST + 1)]
    assert claimed == ["1.1", "1.2", "1.3", None]
    assert not leases.hear("1.3", now=0)


def test_a_shard_that_is_done_is_not_claimed_again() -> None:
    leases = Leases([1])
    leases.claim(1, now=0)
    leases.end(1)
    assert leases.claim(1, now=1) is None
    assert not leases.hear("1.1", now=1)
    assert leases.left == []


def test_a_shard_that_there_is_not_is_not_claimed() -> None:
    assert Leases([1]).claim(2, now=0) is None
