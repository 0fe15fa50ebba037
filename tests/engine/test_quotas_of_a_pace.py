"""How the pace keeps to the quotas that a provider reports, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import pytest
from virtual_time import LoopClock, run_at_once

from kindlm.engine.pace import Pace
from kindlm.events.execution_events import ProviderPaced
from kindlm.ports import Quota


def waits_s(*answers: Sequence[Quota]) -> float:
    """Return how long a call waits after answers, the first call's first, each with quotas."""

    async def main() -> float:
        pace = Pace("p", LoopClock(), lambda _: None, most=10)
        turns = [await pace.turn() for _ in answers]
        for turn, told in zip(turns, answers, strict=True):
            pace.answered(turn, told)
        await pace.turn()
        return asyncio.get_running_loop().time()

    return run_at_once(main())


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        (Quota("requests", 1, 100, 20.0), 0.0),
        (Quota("requests", 0, 100, 20.0), 20.0),
        # No quota holds calls up for more than a minute.
        (Quota("requests", 0, None, 600.0), 60.0),
        (Quota("tokens", 0, None, 600.0), 60.0),
        (Quota("tokens", 1, 1000, 20.0), 0.0),
    ],
)
def test_what_is_left_of_a_quota_decides(quota: Quota, expected: float) -> None:
    assert waits_s([quota]) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["requests", "tokens"])
def test_a_quota_that_is_used_up_is_a_pause(kind: Literal["requests", "tokens"]) -> None:
    async def main() -> list[float]:
        pace = Pace("p", LoopClock(), lambda _: None, most=10)
        pace.answered(await pace.turn(), [Quota(kind, 1, 100, 20.0)])
        pauses = [pace.pause_s]
        pace.answered(await pace.turn(), [Quota(kind, 0, 100, 20.0)])
        for _ in range(2):
            pauses.append(pace.pause_s)
            await asyncio.sleep(15)
        return [*pauses, pace.pause_s]

    assert run_at_once(main()) == pytest.approx([0, 20, 5, 0])


def test_the_quota_of_a_later_call_counts_whichever_answer_comes_first() -> None:
    much, little = [Quota("requests", 90, 100, 20.0)], [Quota("requests", 0, 100, 20.0)]

    async def main(first_told: Sequence[Quota], second_told: Sequence[Quota]) -> float:
        pace = Pace("p", LoopClock(), lambda _: None, most=10)
        first, second = await pace.turn(), await pace.turn()
        pace.answered(second, second_told)
        pace.answered(first, first_told)
        await pace.turn()
        return asyncio.get_running_loop().time()

    assert run_at_once(main(little, much)) == 0.0
    assert run_at_once(main(much, little)) == pytest.approx(20.0)


def test_a_quota_that_is_used_up_is_reported_if_it_means_a_longer_wait() -> None:
    changes: list[tuple[float, float]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def changed(change: ProviderPaced) -> None:
            assert change.reason == "quota"
            changes.append((loop.time(), change.pause_s))

        pace = Pace("p", LoopClock(), changed, most=10)
        turns = [await pace.turn() for _ in range(4)]
        for turn, reset_s in zip(turns, (0.5, 5.0, 5.5, 6.5), strict=True):
            pace.answered(turn, [Quota("tokens", 0, 8000, reset_s)])
        await asyncio.sleep(30)
        pace.answered(await pace.turn(), [Quota("tokens", 0, 8000, 5.0)])

    run_at_once(main())
    assert changes == [(0.0, 5.0), (0.0, 6.5), (30.0, 5.0)]
