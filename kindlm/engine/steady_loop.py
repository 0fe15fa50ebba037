"""The event loop of a run, which goes on if code under test stops the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from time import monotonic
from typing import Any

from kindlm.engine.stop import cut_off
from kindlm.guard import guard


class SteadyLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock no test or fixture can stop."""

    # Freezegun and the like replace the names of modules, and not the attributes of classes.
    time = staticmethod(monotonic)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine, end the tasks that it left behind, and close the loop."""
        with asyncio.Runner(loop_factory=lambda: self) as runner:
            runner.run(_leaving_nothing(work))


async def _leaving_nothing(work: Coroutine[Any, Any, None]) -> None:
    # Test functions may start tasks and not wait for them, and block the loop at its end.
    with guard.beating():
        try:
            await work
        finally:
            this = asyncio.current_task()
            await cut_off(task for task in asyncio.all_tasks() if task is not this)
