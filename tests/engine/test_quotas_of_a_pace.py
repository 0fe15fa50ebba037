"""How the pace keeps to the quotas that a provider reports, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

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
        # The last tenth of a quota is spread over the time until it resets.
        (Quota("requests", 11, 100, 20.0), 0.0),
        (Quota("requests", 10, 100, 20.0), 2.0),
        (Quota("requests", 1, 100, 20.0), 20.0),
        # Without a limit, it is what the first window may send at once.
        (Quota("requests", 7, None, 12.0), 0.0),
        (Quota("requests", 6, None, 12.0), 2.0),
        # No quota holds calls up for more than a minute.
        (Quota("requests", 0, None, 600.0), 60.0),
        (Quota("tokens", 0, None, 600.0), 60.0),
        (Quota("tokens", 1, 1000, 20.0), 0.0),
    ],
)
def test_what_is_left_of_a_quota_decides(quota: Quota, expected: float) -> None:
    assert waits_s([quota]) == pytest.approx(expected)


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


def test_a_quota_that_is_used_up_is_reported_once_a_minute_and_only_for_long_waits() -> None:
    changes: list[tuple[float, float]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def changed(change: ProviderPaced) -> None:
            assert change.reason == "quota"
            changes.append((loop.time(), change.pause_s))

        pace = Pace("p", LoopClock(), changed, most=10)
        for reset_s, then_s in ((0.5, 1.0), (5.0, 30.0), (5.0, 40.0), (5.0, 0.0)):
            pace.answered(await pace.turn(), [Quota("tokens", 0, 8000, reset_s)])
            await asyncio.sleep(then_s)

    run_at_once(main())
    assert changes == [(1.0, 5.0), (71.0, 5.0)]
