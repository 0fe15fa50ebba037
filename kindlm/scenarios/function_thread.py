"""Lets a function in its own thread run work in the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from kindlm.guard import guard

T = TypeVar("T")


class TrialOver(BaseException):
    """Ends the function of a test that still runs in its thread after its trial was cut off."""


def raise_unless_of_a_test(error: BaseException) -> None:
    """Raise an error again if it ends a test from outside.

    A test itself may raise more than `Exception`: `SystemExit`, or the error of `pytest.fail`.
    """
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit | TrialOver):
        raise error


class FunctionThread:
    """Runs work of a function that has its own thread, in the event loop where this was made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_of_loop = threading.get_ident()
        self._running: set[asyncio.Task[Any]] = set()
        self._is_over = False

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, block until it is done, and return its result.

        Raises `TrialOver` after the trial was cut off, and `RuntimeError` in the thread of the
        event loop, which would wait for itself.
        """

        async def tracked() -> T:
            # Checked again in the loop, where `end` runs.
            if self._is_over:
                work.close()
                raise TrialOver
            task = asyncio.current_task()
            assert task is not None
            self._running.add(task)
            try:
                return await work
            finally:
                self._running.discard(task)

        guard.stay_single()
        if threading.get_ident() == self._thread_of_loop:
            work.close()
            message = "an async function, or `stop`, used the trial of a scenario that is not async"
            raise RuntimeError(f"{message}: make the scenario an `async def test_…(t: Trial)`")
        if self._is_over:
            work.close()
            raise TrialOver("the scenario has ended: nothing can be sent or checked any more")
        try:
            return asyncio.run_coroutine_threadsafe(tracked(), self._loop).result()
        except BaseException:
            if self._is_over:
                raise TrialOver from None
            raise

    def end(self) -> None:
        """Cancel the work that the function waits for, and refuse any further work."""
        self._is_over = True
        for task in list(self._running):
            task.cancel()
