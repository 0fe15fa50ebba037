"""The time of one execution: what counts, what does not, and that it ends."""

from __future__ import annotations

import asyncio

import pytest

from kindlm.engine.clock import SystemClock
from kindlm.engine.deadline import Deadline
from kindlm.engine.pace import Pace
from kindlm.engine.turns import Paces, Turns
from kindlm.suite import ProviderSettings

PROVIDER = ProviderSettings("p", "scripted")
SHORT_S = 0.05


async def for_ever() -> None:
    await asyncio.Event().wait()


def test_work_that_never_ends_is_ended() -> None:
    async def whole() -> None:
        with pytest.raises(TimeoutError):
            async with Deadline(SHORT_S, SystemClock()):
                await for_ever()

    asyncio.run(whole())


def test_time_that_stands_still_does_not_run_out_and_runs_on_afterwards() -> None:
    came_back: list[bool] = []

    async def work() -> None:
        deadline = Deadline(SHORT_S, SystemClock())
        async with deadline:
            with deadline.paused():
                await asyncio.sleep(4 * SHORT_S)
            came_back.append(True)
            await for_ever()

    with pytest.raises(TimeoutError):
        asyncio.run(work())
    assert came_back


def test_how_much_is_left_does_not_shrink_while_time_stands_still() -> None:
    async def whole() -> None:
        deadline = Deadline(3_600, SystemClock())
        async with deadline:
            assert deadline.leaves(3_590)
            assert not deadline.leaves(3_600)
            with deadline.paused():
                await asyncio.sleep(SHORT_S)
            assert deadline.leaves(3_590)

    asyncio.run(whole())


def test_time_stands_still_until_the_last_one_goes_on() -> None:
    async def whole() -> None:
        deadline = Deadline(SHORT_S, SystemClock())
        first_goes_on, second_goes_on = asyncio.Event(), asyncio.Event()

        async def wait(until: asyncio.Event) -> None:
            with deadline.paused():
                await until.wait()

        async with deadline:
            waiting = [asyncio.create_task(wait(e)) for e in (first_goes_on, second_goes_on)]
            await asyncio.sleep(0)
            first_goes_on.set()
            await asyncio.sleep(4 * SHORT_S)
            assert deadline.leaves(SHORT_S / 2)
            second_goes_on.set()
            await asyncio.gather(*waiting)

    asyncio.run(whole())


def test_who_is_cancelled_while_time_stands_still_is_cancelled() -> None:
    async def whole() -> None:
        deadline = Deadline(SHORT_S, SystemClock())
        waits = asyncio.Event()

        async def work() -> None:
            async with deadline:
                with deadline.paused():
                    waits.set()
                    await for_ever()

        task = asyncio.create_task(work())
        await waits.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(whole())


def test_waiting_for_a_turn_takes_none_of_the_time_of_an_execution() -> None:
    async def whole() -> None:
        clock = SystemClock()
        pace = Pace(clock, lambda change: None, most=1)
        first = await pace.turn()
        deadline = Deadline(SHORT_S, clock)
        turns = Turns(Paces(lambda callee: pace), deadline)

        async def give_back() -> None:
            await asyncio.sleep(4 * SHORT_S)
            pace.answered(first)

        giving = asyncio.create_task(give_back())
        async with deadline:
            turn = await turns.at(PROVIDER).turn()
        assert turn is not None
        await giving

    asyncio.run(whole())
