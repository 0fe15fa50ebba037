"""Leases: who may push for a shard, and when it goes to another worker."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing

import pytest
from recorded_history import History

from kindlm.engine.resources import Limits
from kindlm.engine.stop import Stop
from kindlm.fleet.coordinator import LOADING_S, MOST_LOST, SILENT_S, Coordinator

Make = Callable[..., Coordinator]


class Time:
    now = 0.0


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def make_coordinator(history: History, time: Time) -> Make:
    def made(*shards: int) -> Coordinator:
        left = dict.fromkeys(shards)
        return Coordinator(
            history.log, left, [], Limits(), Stop(), lambda _: None, clock=lambda: time.now
        )

    return made


def leases(coordinator: Coordinator, shard: int, times: int) -> list[str | None]:
    return [coordinator.claim(shard)["lease"] for _ in range(times)]


def test_only_the_newest_lease_of_a_shard_counts(make_coordinator: Make) -> None:
    coordinator = make_coordinator(1, 2)
    assert leases(coordinator, 1, 1) == ["1.1"]
    assert coordinator.hear("1.1")
    assert leases(coordinator, 1, 1) == ["1.2"]
    assert not coordinator.hear("1.1")
    assert coordinator.hear("1.2")
    assert leases(coordinator, 2, 1) == ["2.1"]


@pytest.mark.parametrize("lease", ["", "1", "1.", "1.2", "2.1", "01.1", "x.1", "1.1.1", "9.1", "²"])
def test_what_is_no_lease_of_this_run_is_not_current(make_coordinator: Make, lease: str) -> None:
    coordinator = make_coordinator(1, 2)
    coordinator.claim(1)
    assert not coordinator.hear(lease)


def test_a_worker_that_is_silent_loses_its_shard_and_what_it_says_later_is_refused(
    make_coordinator: Make, time: Time, history: History
) -> None:
    coordinator, pending = make_coordinator(1), Future[str]()
    coordinator.claim(1)
    time.now = 30.0
    assert coordinator.hear("1.1")
    coordinator.pushed("1.1", [])
    time.now = 30 + SILENT_S
    assert coordinator._end_of(1, pending) is None
    time.now += 0.1
    end = coordinator._end_of(1, pending)
    assert end is not None
    with closing(history.log.reader()) as db:
        assert coordinator._must_run_again(1, end, db)
    assert not coordinator.hear("1.1")
    time.now = 1_000.0
    assert coordinator._end_of(1, pending) is None
    assert leases(coordinator, 1, 1) == ["1.2"]


def test_a_worker_that_loads_modules_for_minutes_is_not_lost(
    make_coordinator: Make, time: Time
) -> None:
    coordinator, pending = make_coordinator(1), Future[str]()
    coordinator.claim(1)
    time.now = LOADING_S
    assert coordinator._end_of(1, pending) is None
    time.now += 0.1
    assert coordinator._end_of(1, pending) is not None


def test_workers_that_take_a_shard_from_one_another_do_so_only_so_often(
    make_coordinator: Make,
) -> None:
    coordinator = make_coordinator(1)
    assert leases(coordinator, 1, MOST_LOST + 1) == ["1.1", "1.2", "1.3", None]
    assert not coordinator.hear("1.3")


def test_a_shard_that_there_is_not_is_not_claimed(make_coordinator: Make) -> None:
    assert leases(make_coordinator(1), 2, 1) == [None]
