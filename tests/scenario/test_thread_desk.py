"""Where functions in other threads hand in what they ask for."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from kindlm.ports import Stage
from kindlm.scenarios.thread_desk import ThreadDesk, TrialOver, at_once


class Kept:
    """Keeps what is recorded."""

    def __init__(self) -> None:
        self.scores: list[str] = []

    def record_score(self, name: str, _value: float, _where: object) -> None:
        self.scores.append(name)


def test_what_was_asked_for_before_the_end_is_not_done_after_it() -> None:
    stage = Kept()

    async def trial() -> None:
        loop = asyncio.get_running_loop()
        asked = threading.Event()
        hand_over = loop.call_soon_threadsafe

        def telling(*arguments: Any, **options: Any) -> asyncio.Handle:
            handle = hand_over(*arguments, **options)
            asked.set()
            return handle

        loop.call_soon_threadsafe = telling  # type: ignore[method-assign]
        desk = ThreadDesk(cast(Stage, stage))

        def function() -> None:
            with pytest.raises(TrialOver):
                desk.record_score("late", 1, None)

        thread = asyncio.create_task(asyncio.to_thread(function))
        await asyncio.sleep(0)
        # The loop stands still here: it is asked, and has done nothing yet.
        assert asked.wait(10)
        desk.end()
        await thread

    asyncio.run(trial())
    assert stage.scores == []


def test_a_coroutine_that_waits_cannot_be_run_at_once() -> None:
    with pytest.raises(RuntimeError, match="waits for the event loop"):
        at_once(asyncio.sleep(0))
