"""The pace towards a server that allows so much, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rate_limits import Allowance, Limit, SlidingWindow, TokenBucket
from virtual_time import LoopClock, run_at_once

from examples import examples
from kindlm.bounds import MAX_RETRY_AFTER_S
from kindlm.engine.pace import Pace, Turn
from kindlm.engine.stop import Clock
from kindlm.events.execution_events import ProviderPaced
from kindlm.ports import Quota


@dataclass
class Server:
    """Answers after a latency; what is beyond its limit is refused.

    So are calls by number (`refuses`) and a part of all (`overloaded`), whatever the rate; those
    name `names_s`. `unevenly` is how far latencies and arrivals differ, as a part of the latency.
    """

    limit: Limit | None
    latency_s: float
    retry_after: bool = True
    quotas: bool = False
    changes: list[tuple[float, Limit | None]] = field(default_factory=list)
    overloaded: float = 0.0
    refuses: frozenset[int] = frozenset()
    names_s: float | None = None
    says_overloaded: bool = False
    unevenly: float = 0.0
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    calls: list[tuple[float, bool]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    async def call(self, pace: Pace, turn: Turn) -> bool:
        if self.unevenly:
            await asyncio.sleep(self.chance.uniform(0, self.unevenly) * self.latency_s)
        now = asyncio.get_running_loop().time()
        while self.changes and self.changes[0][0] <= now:
            self.limit = self.changes.pop(0)[1]
        good = self.limit is None or self.limit.take(now)
        wait = None
        if self.limit is not None and not good and self.retry_after:
            wait = float(math.ceil(self.limit.wait_s(now)))
        if turn.number in self.refuses or self.chance.random() < self.overloaded:
            good, wait = False, self.names_s
        self.calls.append((now, good))
        told = self._told(now)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(self.latency_s * (1 + self.chance.uniform(-1, 1) * self.unevenly))
        self.in_flight -= 1
        if good:
            pace.answered(turn, told)
        else:
            pace.refused(turn, wait, told, overloaded=self.says_overloaded)
        return good

    def _told(self, now: float) -> Sequence[Quota]:
        if self.limit is None or not self.quotas:
            return ()
        allowance = self.limit.allowance(now)
        return (Quota("requests", allowance.left, allowance.limit, allowance.reset_s),)

    def good(self, begin: float, end: float) -> int:
        return sum(good for at, good in self.calls if begin <= at < end)

    @property
    def refused(self) -> float:
        return sum(not good for _, good in self.calls) / len(self.calls)


def drive(
    server: Server, *, most: int, minutes: float, max_rpm: float | None = None
) -> list[ProviderPaced]:
    """Call a server for so long with endless work; return the changes of the pace."""
    changes: list[ProviderPaced] = []

    async def main() -> None:
        pace = Pace("p", LoopClock(), changes.append, max_rpm=max_rpm, most=most)
        workers = [asyncio.create_task(work(pace)) for _ in range(most)]
        await asyncio.sleep(minutes * 60)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    async def work(pace: Pace) -> None:
        while True:
            await server.call(pace, await pace.turn())

    run_at_once(main())
    return changes


async def waited_s(pace: Pace) -> float:
    """Take a turn, and return how long that took."""
    begun = asyncio.get_running_loop().time()
    await pace.turn()
    return asyncio.get_running_loop().time() - begun


def small_bucket(per_minute: int) -> Limit:
    return TokenBucket(per_minute, max(3, per_minute // 20))


def full_bucket(per_minute: int) -> Limit:
    return TokenBucket(per_minute, per_minute)


LIMITS: dict[str, tuple[Callable[[int], Limit], bool, bool]] = {
    "window": (SlidingWindow, True, False),
    "bucket": (small_bucket, True, False),
    "bucket that names no time": (small_bucket, False, False),
    "bucket that tells what is left": (small_bucket, True, True),
    "bucket that tells only what is left": (small_bucket, False, True),
    "bucket of a whole minute that tells what is left": (full_bucket, True, True),
}


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize(
    ("per_minute", "latency_s", "most"),
    [
        (60, 0.01, 64),
        (60, 5.0, 32),
        (600, 0.01, 8),
    ],
)
def test_most_of_a_limit_is_used_and_little_is_refused(kind, per_minute, latency_s, most):
    limit, retry_after, quotas = LIMITS[kind]
    server = Server(limit(per_minute), latency_s, retry_after, quotas)
    minutes = 2 if per_minute == 600 else 8
    changes = drive(server, most=most, minutes=minutes)
    assert server.good(60, minutes * 60) >= 0.8 * per_minute * (minutes - 1)
    assert server.refused <= 0.07
    assert len(changes) <= 6 * minutes


class FixedWindow:
    """At most so many requests in each minute of the clock."""

    def __init__(self, per_minute: int) -> None:
        self._most = per_minute
        self._minute, self._taken = 0, 0

    def take(self, now: float) -> bool:
        self._turn_over(now)
        self._taken += 1
        return self._taken <= self._most

    def wait_s(self, now: float) -> float:
        self._turn_over(now)
        return 0.0 if self._taken < self._most else 60 - now % 60

    def allowance(self, now: float) -> Allowance:
        self._turn_over(now)
        return Allowance(max(0, self._most - self._taken), self._most, 60 - now % 60)

    def _turn_over(self, now: float) -> None:
        if self._minute != now // 60:
            self._minute, self._taken = int(now // 60), 0


@pytest.mark.parametrize(
    ("limit", "latency_s", "retry_after", "quotas"),
    [
        pytest.param(TokenBucket(60, 1), 5.0, False, False, id="bucket of one, slow answers"),
        pytest.param(TokenBucket(60, 1), 5.0, True, False, id="bucket of one that names a time"),
        pytest.param(TokenBucket(60, 10), 1.0, False, False, id="bucket of ten"),
        pytest.param(SlidingWindow(60), 0.05, False, False, id="window that is full at once"),
        pytest.param(SlidingWindow(60), 1.0, False, False, id="window"),
        pytest.param(SlidingWindow(60), 5.0, False, False, id="window, slow answers"),
        pytest.param(SlidingWindow(60), 4.0, False, True, id="window that tells what is left"),
        pytest.param(FixedWindow(60), 5.0, False, False, id="fixed window, slow answers"),
        pytest.param(FixedWindow(60), 1.0, True, True, id="fixed window that tells everything"),
    ],
)
def test_ten_minutes_with_their_beginning_use_a_low_limit_well(
    limit, latency_s, retry_after, quotas
):
    server = Server(limit, latency_s, retry_after, quotas)
    drive(server, most=32, minutes=10)
    assert server.good(0, 600) >= 0.8 * 60 * 10
    assert server.refused <= 0.07


def test_what_is_left_of_a_fixed_window_does_not_grow_before_it_ends():
    server = Server(FixedWindow(300), 5.0, retry_after=True, quotas=True)
    drive(server, most=32, minutes=10)
    assert server.good(0, 600) >= 0.9 * 300 * 10
    assert server.refused == 0


def test_after_a_pause_calls_do_not_come_in_pairs():
    """A bucket of one would refuse the second of a pair."""

    async def main() -> list[float]:
        pace = Pace("p", LoopClock(), lambda _: None, max_rpm=1800, most=10)
        pace.refused(await pace.turn(), 2.0)
        first = await pace.turn()
        pace.answered(first)
        return [first.started_at, (await pace.turn()).started_at]

    first, second = run_at_once(main())
    assert first == pytest.approx(2.0)
    assert second - first >= 60 / 1800 - 0.001


@pytest.mark.parametrize("kind", ["window", "bucket that names no time"])
def test_high_limits_are_used_too(kind):
    limit, retry_after, quotas = LIMITS[kind]
    server = Server(limit(1500), 0.5, retry_after, quotas)
    drive(server, most=32, minutes=1.5)
    assert server.good(60, 90) >= 0.8 * 750
    assert server.refused <= 0.05


def six_minutes(kind: str, per_minute: int, latency_s: float, most: int) -> Server:
    limit, retry_after, quotas = LIMITS[kind]
    server = Server(limit(per_minute), latency_s, retry_after, quotas)
    drive(server, most=most, minutes=6)
    return server


# No bound holds everywhere: other examples each time would fail some day, and tell of nothing new.
@examples(5, derandomize=True)
@given(
    kind=st.sampled_from(sorted(LIMITS)),
    per_minute=st.integers(60, 1200),
    latency_s=st.floats(0.01, 5.0),
    most=st.integers(1, 64),
)
@example(kind="window", per_minute=214, latency_s=3.923556460319429, most=44)
def test_no_limit_is_stormed_or_wasted(kind, per_minute, latency_s, most):
    server = six_minutes(kind, per_minute, latency_s, most)
    possible = min(per_minute, most / latency_s * 60)
    assert server.good(60, 360) >= 0.5 * possible * 5
    assert server.refused <= 0.15
    assert server.most_in_flight <= most


@pytest.mark.parametrize(
    ("per_minute", "latency_s", "most"), [(190, 4.5, 62), (190, 4.5, 52), (200, 4.0, 63)]
)
def test_many_slow_calls_storm_a_window_somewhat(per_minute, latency_s, most):
    """Those that are in flight when its rate was given up are refused together."""
    server = six_minutes("window", per_minute, latency_s, most)
    assert server.good(60, 360) >= 0.82 * per_minute * 5
    assert server.refused <= 0.12


@pytest.mark.parametrize(
    ("kind", "per_minute", "latency_s", "most"),
    [
        ("bucket that names no time", 150, 0.25, 1),
        ("bucket", 60, 0.21875, 4),
        ("bucket", 60, 0.625, 7),
        ("window", 259, 4.0, 39),
    ],
)
def test_a_limit_that_is_only_just_exceeded_is_found_for_good(kind, per_minute, latency_s, most):
    """It refuses single calls, for which its rate was given up again and again."""
    server = six_minutes(kind, per_minute, latency_s, most)
    assert server.good(60, 360) >= 0.75 * per_minute * 5
    assert server.refused <= 0.07


@pytest.mark.parametrize("latency_s", [0.05, 1.0])
def test_without_a_limit_the_start_costs_little(latency_s):
    server = Server(None, latency_s)
    ideal = 1000 / 32 * latency_s
    changes = drive(server, most=32, minutes=ideal / 60)
    assert len(server.calls) >= 850
    assert changes == []


@pytest.mark.parametrize(
    ("overloaded", "names_s", "seconds", "good"),
    [
        (0.03, None, 10, 250),
        (0.03, 1.0, 20, 200),
        (0.1, None, 60, 90),
        (0.1, 1.0, 60, 90),
        (0.3, None, 600, 85),
        (0.3, 1.0, 600, 80),
    ],
)
def test_refusals_whatever_the_rate_do_not_bring_calls_to_a_halt(
    overloaded, names_s, seconds, good
):
    """Each would take its part off the rate, down to a call in minutes."""
    server = Server(None, 0.03, overloaded=overloaded, names_s=names_s, unevenly=0.5)
    drive(server, most=16, minutes=seconds / 60)
    assert server.good(0, seconds) >= good


@pytest.mark.parametrize(
    ("overloaded", "names_s", "seconds"),
    [(0.03, None, 2), (0.03, 1.0, 15), (0.1, None, 8), (0.1, 1.0, 25), (0.3, None, 120)],
)
def test_an_overload_is_no_limit(overloaded, names_s, seconds):
    for seed in range(3):
        server = Server(None, 0.03, overloaded=overloaded, names_s=names_s, unevenly=0.5)
        server.says_overloaded, server.chance = True, random.Random(seed)
        changes = drive(server, most=16, minutes=seconds / 60)
        assert server.good(0, seconds) >= 144
        assert all(change.calls_per_minute is None for change in changes)


def test_a_server_that_is_overloaded_for_long_is_left_alone():
    server = Server(None, 0.03, overloaded=1.0, says_overloaded=True)
    drive(server, most=16, minutes=10)
    assert len(server.calls) <= 30


@pytest.mark.parametrize("refuses", [{1, 2, 3}, {3, 6, 9}])
@pytest.mark.parametrize("latency_s", [0.03, 0.6])
def test_a_fixed_limit_is_reached_again_after_early_refusals(refuses, latency_s):
    server = Server(None, latency_s, refuses=frozenset(refuses), names_s=1.0)
    drive(server, most=8, minutes=2, max_rpm=120)
    assert server.good(0, 22) >= 20
    assert server.good(60, 120) >= 110


def test_a_fixed_limit_that_is_not_reached_does_not_fall_for_calls_it_held_back():
    server = Server(None, 0.03, overloaded=0.1, names_s=1.0, unevenly=0.5)
    drive(server, most=8, minutes=6, max_rpm=120)
    assert server.good(0, 360) >= 200


@pytest.mark.parametrize("kind", ["window", "bucket that names no time"])
@pytest.mark.parametrize(("per_minute", "latency_s", "most"), [(60, 0.5, 8), (300, 1.0, 32)])
def test_limits_are_used_well_by_calls_that_come_unevenly(kind, per_minute, latency_s, most):
    limit, retry_after, quotas = LIMITS[kind]
    server = Server(limit(per_minute), latency_s, retry_after, quotas, unevenly=0.5)
    drive(server, most=most, minutes=5)
    assert server.good(60, 300) >= 0.8 * per_minute * 4
    assert server.refused <= 0.05


def test_a_refusal_that_came_alone_halves_what_is_in_flight_and_does_no_more():
    changes: list[ProviderPaced] = []

    async def main() -> float:
        pace = Pace("p", LoopClock(), changes.append, most=10)
        turns = [await pace.turn() for _ in range(6)]
        pace.refused(turns[0], None)
        for turn in turns[1:]:
            pace.answered(turn)
        return await waited_s(pace)

    assert run_at_once(main()) == 0.0
    assert [(change.calls_per_minute, change.in_flight) for change in changes] == [(None, 3)]


def test_calls_that_failed_otherwise_decide_nothing_while_a_refusal_is_doubted():
    async def main() -> float:
        pace = Pace("p", LoopClock(), lambda _: None, most=10)
        turns = [await pace.turn() for _ in range(6)]
        pace.refused(turns[0], 2.0)
        for turn in turns[1:]:
            pace.ended(turn)
        for _ in range(3):
            pace.answered(await pace.turn())
        return (await pace.turn()).started_at

    assert run_at_once(main()) == pytest.approx(2.0)


@pytest.mark.parametrize("number", range(4))
def test_a_long_pause_is_reported_at_once_whichever_call_learns_of_it(number):
    changes: list[ProviderPaced] = []

    async def main() -> None:
        pace = Pace("p", LoopClock(), changes.append, most=10)
        turns = [await pace.turn() for _ in range(6)]
        for turn in turns[:number]:
            pace.refused(turn, None)
        told = len(changes)
        pace.refused(turns[number], 3600.0)
        assert changes[told:]
        for turn in turns[number + 1 :]:
            pace.refused(turn, 3600.0)
        assert len(changes) == told + 1

    run_at_once(main())
    assert (changes[-1].reason, changes[-1].pause_s) == ("refused", 3600.0)


def test_a_long_pause_of_a_known_rate_is_reported_at_once():
    changes: list[ProviderPaced] = []
    server = Server(TokenBucket(60, 3), 0.1)

    async def main() -> None:
        pace = Pace("p", LoopClock(), changes.append, most=4)
        for _ in range(300):
            await server.call(pace, await pace.turn())
        assert changes[-1].calls_per_minute is not None
        told = len(changes)
        pace.refused(await pace.turn(), 3600.0)
        assert [change.pause_s for change in changes[told:]] == [3600.0]

    run_at_once(main())


@pytest.mark.parametrize("factor", [0.5, 2])
@pytest.mark.parametrize("kind", ["window", "bucket that names no time"])
def test_a_limit_that_changes_is_followed(kind, factor):
    limit, retry_after, quotas = LIMITS[kind]
    changed = int(120 * factor)
    server = Server(limit(120), 0.2, retry_after, quotas, changes=[(180.0, limit(changed))])
    drive(server, most=32, minutes=9)
    assert server.good(360, 540) >= 0.75 * changed * 3
    assert server.refused <= 0.06


def test_a_server_that_was_down_is_called_at_its_pace_again():
    none = SlidingWindow(0)
    server = Server(
        small_bucket(300),
        0.2,
        retry_after=False,
        changes=[(120.0, none), (180.0, small_bucket(300))],
    )
    drive(server, most=32, minutes=7)
    down = [at for at, _ in server.calls if 121 <= at < 180]
    assert len(down) <= 10
    assert server.good(300, 420) >= 0.8 * 600


def test_a_fixed_limit_is_kept_evenly():
    server = Server(None, 0.5)
    drive(server, most=32, minutes=2, max_rpm=90)
    starts = [at for at, _ in server.calls]
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert len(starts) in (180, 181)
    assert min(gaps) >= 60 / 90 - 0.03


def test_slow_answers_to_calls_sent_at_a_low_rate_do_not_raise_a_higher_one():
    """Without that, one call of seven is refused."""
    server = Server(small_bucket(60), 15.0, retry_after=False)
    drive(server, most=32, minutes=10)
    assert server.good(0, 600) >= 240
    assert server.refused <= 0.11


def test_own_cooldowns_double_then_last_until_the_minute_is_over():
    async def main() -> list[float]:
        pace = Pace("p", LoopClock(), lambda _: None, most=1)
        starts: list[float] = []
        for _ in range(10):
            turn = await pace.turn()
            starts.append(turn.started_at)
            pace.refused(turn, None)
        return starts

    starts = run_at_once(main())
    probes = [later - earlier for earlier, later in itertools.pairwise(starts) if later > earlier]
    assert probes == pytest.approx([1, 2, 4, 53, 16, 32, 60, 60][: len(probes)])
    assert 60 in starts


def test_a_fixed_limit_above_that_of_the_server_is_not_reached():
    server = Server(small_bucket(60), 0.05)
    drive(server, most=8, minutes=10, max_rpm=600)
    assert server.good(60, 600) >= 0.8 * 60 * 9
    assert server.refused <= 0.05


def test_refusals_of_one_congestion_halve_once():
    changes: list[ProviderPaced] = []

    async def main() -> None:
        pace = Pace("p", LoopClock(), changes.append, most=10)
        for turn in [await pace.turn() for _ in range(6)]:
            pace.refused(turn, 7.0)

    run_at_once(main())
    assert [(change.reason, change.in_flight, change.pause_s) for change in changes] == [
        ("refused", 3, 7.0),
        ("refused", 3, 7.0),
    ]


def test_nothing_starts_before_retry_after_and_then_not_all_at_once():
    async def main() -> list[float]:
        pace = Pace("p", LoopClock(), lambda _: None, most=10)
        for turn in [await pace.turn() for _ in range(6)]:
            await asyncio.sleep(0.1)
            if turn.number < 6:
                pace.answered(turn)
            else:
                pace.refused(turn, 9.0)
        assert pace.turn_now() is None
        started_at = [(await pace.turn()).started_at for _ in range(3)]
        assert pace.turn_now() is None
        return started_at

    assert run_at_once(main()) == pytest.approx([9.6] * 3)


def test_a_call_that_failed_otherwise_changes_nothing():
    changes: list[ProviderPaced] = []

    async def main() -> int:
        pace = Pace("p", LoopClock(), changes.append, most=64)
        for _ in range(100):
            pace.ended(await pace.turn())
        turns = 0
        while pace.turn_now() is not None:
            turns += 1
        return turns

    assert run_at_once(main()) == 6
    assert changes == []


@pytest.mark.parametrize(("left", "waits_s"), [(0, 8.0), (1, 8.0), (30, 0.0)])
def test_what_is_left_is_not_overdrawn(left, waits_s):
    """One was left when the first call came, and the second call has taken it."""

    async def main() -> float:
        pace = Pace("p", LoopClock(), lambda _: None, most=10)
        first, second = await pace.turn(), await pace.turn()
        await asyncio.sleep(2)
        pace.answered(first, [Quota("requests", left, None, 10.0)])
        pace.ended(second)
        return await waited_s(pace)

    assert run_at_once(main()) == pytest.approx(waits_s)


def test_used_up_tokens_are_waited_for_and_reported():
    changes: list[ProviderPaced] = []

    async def main() -> float:
        pace = Pace("p", LoopClock(), changes.append, most=10)
        pace.answered(await pace.turn(), [Quota("tokens", 0, 8000, 12.0)])
        return await waited_s(pace)

    assert run_at_once(main()) == pytest.approx(12.0)
    assert changes == [ProviderPaced(callee="p", reason="quota", in_flight=6, pause_s=12.0)]


def test_a_quota_that_says_nothing_of_time_holds_nothing_up():
    async def main() -> float:
        pace = Pace("p", LoopClock(), lambda _: None, most=10)
        pace.answered(await pace.turn(), [Quota("requests", 0, 60)])
        return await waited_s(pace)

    assert run_at_once(main()) == 0.0


def test_turns_are_taken_in_order_even_if_one_gives_up():
    async def main() -> list[int]:
        pace = Pace("p", LoopClock(), lambda _: None, max_rpm=60, most=10)
        order: list[int] = []

        async def wait(name: int) -> None:
            await pace.turn()
            order.append(name)

        waiting = [asyncio.create_task(wait(name)) for name in range(6)]
        await asyncio.sleep(1.5)
        waiting[2].cancel()
        waiting[4].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return order

    assert run_at_once(main()) == [0, 1, 3, 5]


def test_a_turn_at_once_overtakes_no_waiting_call():
    """Two calls end together, three wait: when the first of them has started, one place is free."""

    async def main() -> list[str]:
        pace = Pace("p", LoopClock(), lambda _: None, most=2)
        running = [await pace.turn(), await pace.turn()]
        order: list[str] = []

        async def wait(name: int) -> None:
            await pace.turn()
            order.append(f"waited {name}")

        async def try_at_once() -> None:
            for _ in range(50):
                if pace.turn_now() is not None:
                    order.append("at once")
                await asyncio.sleep(0)

        async def wait_for_room() -> None:
            await pace.room()
            order.append("room")

        waiting = [asyncio.create_task(wait(name)) for name in range(3)]
        await asyncio.sleep(0)
        newcomers = [asyncio.create_task(try_at_once()), asyncio.create_task(wait_for_room())]
        await asyncio.sleep(0)
        for turn in running:
            pace.ended(turn)
        await asyncio.sleep(1)
        for task in (*waiting, *newcomers):
            task.cancel()
        return order

    assert run_at_once(main()) == ["waited 0", "waited 1"]


def test_waiting_for_room_takes_no_turn():
    async def main() -> None:
        pace = Pace("p", LoopClock(), lambda _: None, most=1)
        turn = await pace.turn()
        room = asyncio.create_task(pace.room())
        await asyncio.sleep(3)
        assert not room.done()
        pace.answered(turn)
        await room
        assert pace.turn_now() is not None

    run_at_once(main())


OUTCOMES = st.one_of(
    st.just("answered"),
    st.just("ended"),
    st.just("cancelled"),
    st.none() | st.floats(0.0, 100.0),
)
QUOTAS = st.lists(
    st.builds(
        Quota,
        st.sampled_from(["requests", "tokens"]),
        st.integers(0, 20),
        st.none() | st.integers(1, 100),
        st.none() | st.floats(0.0, 1e6),
    ),
    max_size=2,
)


@examples(40, deadline=None)
@given(
    script=st.lists(st.tuples(OUTCOMES, st.floats(0.0, 10.0), QUOTAS), max_size=40),
    most=st.integers(1, 12),
)
def test_whatever_calls_end_with_all_get_their_turn_and_none_before_retry_after(script, most):
    async def main() -> tuple[list[float], list[tuple[float, float]]]:
        pace = Pace("p", LoopClock(), lambda _: None, most=most)
        loop = asyncio.get_running_loop()
        starts: list[float] = []
        closed: list[tuple[float, float]] = []

        async def call(outcome: str | float | None, latency_s: float, told: list[Quota]) -> None:
            turn = await pace.turn()
            starts.append(turn.started_at)
            try:
                await asyncio.sleep(latency_s)
            except asyncio.CancelledError:
                pace.ended(turn)
                raise
            if outcome == "answered":
                pace.answered(turn, told)
            elif isinstance(outcome, str):
                pace.ended(turn)
            else:
                closed.append((loop.time(), loop.time() + (outcome or 0.0)))
                pace.refused(turn, outcome, told)

        async with asyncio.timeout(24 * 3600):
            tasks = [asyncio.create_task(call(*step)) for step in script]
            for task, (outcome, latency_s, _) in zip(tasks, script, strict=True):
                if outcome == "cancelled":
                    loop.call_later(latency_s / 2, task.cancel)
            await asyncio.wait(tasks) if tasks else None
            await pace.room()
        return starts, closed

    starts, closed = run_at_once(main())
    assert not any(begin < at < end - 1e-6 for at in starts for begin, end in closed)


def test_a_provider_that_refuses_each_call_is_called_every_few_minutes():
    async def main() -> list[float]:
        pace = Pace("p", LoopClock(), lambda _: None, most=4)
        starts = []
        outcomes = [96.0, None, *["answered"] * 2, *["ended"] * 4, *[None] * 10]

        async def call(outcome: str | float | None) -> None:
            turn = await pace.turn()
            starts.append(turn.started_at)
            await asyncio.sleep(10 if len(starts) in (1, 4) else 0)
            if outcome == "answered":
                pace.answered(turn)
            elif outcome == "ended":
                pace.ended(turn)
            else:
                pace.refused(turn, outcome)

        await asyncio.gather(*map(call, outcomes))
        return starts

    starts = run_at_once(main())
    waits = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert len(waits) == 17
    assert max(waits) < 2 * MAX_RETRY_AFTER_S


def test_turns_follow_on_each_other_on_the_clock_of_the_machine():
    async def main() -> list[int]:
        pace = Pace("p", Clock(), lambda _: None, max_rpm=60_000, most=4)
        numbers: list[int] = []

        async def work() -> None:
            for _ in range(10):
                turn = await pace.turn()
                await asyncio.sleep(0)
                numbers.append(turn.number)
                pace.answered(turn)

        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(work())
        return numbers

    assert sorted(asyncio.run(main())) == list(range(1, 81))


@examples(5, derandomize=True)
@given(
    limits=st.lists(st.floats(6, 3000), min_size=2, max_size=4),
    latency_s=st.floats(0.01, 3.0),
    most=st.integers(1, 32),
)
def test_a_limit_that_changes_holds_at_once(limits: list[float], latency_s: float, most: int):
    async def main() -> list[float]:
        pace = Pace("p", LoopClock(), lambda _: None, max_rpm=limits[0], most=most)
        starts: list[float] = []

        async def work() -> None:
            while True:
                turn = await pace.turn()
                starts.append(turn.started_at)
                await asyncio.sleep(latency_s)
                pace.answered(turn)

        workers = [asyncio.create_task(work()) for _ in range(most)]
        for limit in limits:
            pace.set_max_rpm(limit)
            await asyncio.sleep(60)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        return starts

    starts = run_at_once(main())
    for minute, limit in enumerate(limits):
        # In the first seconds, the window may still grow.
        calls = [at for at in starts if minute * 60 <= at < minute * 60 + 60]
        assert len(calls) <= limit + 2
        assert len(calls) >= 0.6 * min(limit, most * 60 / latency_s) - most - 6


def test_what_was_learnt_stays_when_the_limit_changes():
    """Behind a wide limit of ours, that of the server is known still."""
    server = Server(SlidingWindow(300), 0.5)

    async def main() -> None:
        pace = Pace("p", LoopClock(), lambda _: None, most=16)
        workers = [asyncio.create_task(work(pace)) for _ in range(16)]
        for limit in (60, 6000):
            await asyncio.sleep(120)
            pace.set_max_rpm(limit)
        await asyncio.sleep(240)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    async def work(pace: Pace) -> None:
        while True:
            await server.call(pace, await pace.turn())

    run_at_once(main())
    assert server.good(180, 240) <= 62
    assert server.good(300, 480) >= 0.65 * 300 * 3
    assert server.refused <= 0.03


def test_a_fixed_limit_far_above_that_of_the_server_is_not_tried_out():
    server = Server(SlidingWindow(300), 0.5)
    drive(server, most=16, minutes=4, max_rpm=60_000)
    assert server.good(60, 240) >= 0.8 * 300 * 3
    assert server.refused <= 0.02
