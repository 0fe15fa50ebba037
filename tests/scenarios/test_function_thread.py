"""What functions in other threads ask for."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

from kindlm.scenarios.function_thread import FunctionThread, TrialOver
from kindlm.scenarios.trial import SyncTrial


def test_what_was_asked_for_before_the_end_is_not_done_after_it() -> None:
    done: list[str] = []

    async def trial() -> None:
        loop = asyncio.get_running_loop()
        asked = threading.Event()
        hand_over = loop.call_soon_threadsafe

        def telling(*arguments: Any, **options: Any) -> asyncio.Handle:
            handle = hand_over(*arguments, **options)
            asked.set()
            return handle

        loop.call_soon_threadsafe = telling  # type: ignore[method-assign]
        of_function = FunctionThread()

        async def work() -> None:
            done.append("late")

        def function() -> None:
            with pytest.raises(TrialOver):
                of_function.wait_for(work())

        thread = asyncio.create_task(asyncio.to_thread(function))
        await asyncio.sleep(0)
        # The loop stands still here: it is asked, and has done nothing yet.
        assert asked.wait(10)
        of_function.end()
        await thread

    asyncio.run(trial())
    assert done == []


def test_a_thread_may_make_variables_while_it_is_searched_for_a_trial() -> None:
    begun, go_on = threading.Event(), threading.Event()
    own = {"begun": begun, "go_on": go_on}
    thread = threading.Thread(target=exec, args=("begun.set()\ngo_on.wait()", own))
    thread.start()
    assert begun.wait(10)
    trial = SyncTrial.__new__(SyncTrial)
    sys.setprofile(lambda *_: own.update({f"v{len(own)}": begun}))
    try:
        assert trial._lost_thread() is None
    finally:
        sys.setprofile(None)
        go_on.set()
        thread.join()
