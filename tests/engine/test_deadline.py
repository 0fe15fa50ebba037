"""The time of one execution, in virtual time: what counts, what does not, and that it ends."""

from __future__ import annotations

import asyncio

import pytest
from engine_calls import make_calls
from virtual_time import LoopClock, run_at_once

from kindlm.engine.pace import Pace
from kindlm.engine.stop import Deadline

TIME_S = 60.0


async def for_ever() -> None:
    await asyncio.Event().wait()


def test_work_that_never_ends_is_ended() -> None:
    async def whole() -> None:
        with pytest.raises(TimeoutError):
            async with Deadline(TIME_S, LoopClock()).timeout:
                await for_ever()

    run_at_once(whole())


def test_time_that_stands_still_does_not_run_out_and_runs_on_afterwards() -> None:
    came_back: list[bool] = []

    async def work() -> None:
        deadline = Deadline(TIME_S, LoopClock())
        async with deadline.timeout:
            with deadline.paused():
                await asyncio.sleep(4 * TIME_S)
            came_back.append(True)
            await for_ever()

    with pytest.raises(TimeoutError):
        run_at_once(work())
    assert came_back


def test_how_much_is_left_does_not_shrink_while_time_stands_still() -> None:
    async def whole() -> None:
        deadline = Deadline(3_600, LoopClock())
        async with deadline.timeout:
            assert deadline.leaves(3_590)
            assert not deadline.leaves(3_600)
            with deadline.paused():
                await asyncio.sleep(TIME_S)
            assert deadline.leaves(3_590)

    run_at_once(whole())


def test_time_stands_still_until_the_last_one_goes_on() -> None:
    async def whole() -> None:
        deadline = Deadline(TIME_S, LoopClock())
        first_goes_on, second_goes_on = asyncio.Event(), asyncio.Event()

        async def wait(until: asyncio.Event) -> None:
            with deadline.paused():
                await until.wait()

        async with deadline.timeout:
            waiting = [asyncio.create_task(wait(e)) for e in (first_goes_on, second_goes_on)]
            await asyncio.sleep(0)
            first_goes_on.set()
            await asyncio.sleep(4 * TIME_S)
            assert deadline.leaves(TIME_S / 2)
            second_goes_on.set()
            await asyncio.gather(*waiting)

    run_at_once(whole())


def test_who_is_cancelled_while_time_stands_still_is_cancelled() -> None:
    async def whole() -> None:
        deadline = Deadline(TIME_S, LoopClock())
        waits = asyncio.Event()

        async def work() -> None:
            async with deadline.timeout:
                with deadline.paused():
                    waits.set()
                    await for_ever()

        task = asyncio.create_task(work())
        await waits.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_at_once(whole())


def test_waiting_for_a_turn_takes_none_of_the_time_of_an_execution() -> None:
    async def whole() -> None:
        clock = LoopClock()
        pace = Pace("p", clock, lambda change: None, most=1)
        first = await pace.turn()
        deadline = Deadline(TIME_S, clock)
        calls = make_calls(clock, deadline)

        async def give_back() -> None:
            await asyncio.sleep(4 * TIME_S)
            pace.answered(first)

        giving = asyncio.create_task(give_back())
        async with deadline.timeout:
            await calls.turn(pace)
        await giving

    run_at_once(whole())
