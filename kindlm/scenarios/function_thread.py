"""Lets a function in its own thread ask for work of the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kindlm.guard import guard

T = TypeVar("T")


class TrialOver(BaseException):
    """The trial was cut off, and the function of a test still runs in its thread."""


def raise_unless_of_a_test(error: BaseException) -> None:
    """Raise again what cuts a test off from outside; the rest is what the test itself raised.

    That may be more than an `Exception`: `SystemExit`, and what `pytest.fail` raises.
    """
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit | TrialOver):
        raise error


class FunctionThread:
    """The thread of a function, seen from the event loop that this was made in.

    What the function asks for is done in the loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_of_loop = threading.get_ident()
        self._running: set[asyncio.Task[Any]] = set()
        self._is_over = False

    def do(self, work: Callable[[], T]) -> T:
        """Return what a function does in the loop; see `wait_for`."""

        async def done() -> T:
            return work()

        return self.wait_for(done())

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine does, once it is done.

        Raises:
            RuntimeError: this is the thread of the event loop, which would wait for itself.
        """

        async def kept() -> T:
            # Here as well as where it was asked for: `end` runs in this thread.
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
            raise RuntimeError(
                "an async function used the trial of a scenario that is not async: make the"
                " scenario an `async def test_…(t: Trial)`"
            )
        if self._is_over:
            work.close()
            raise TrialOver
        try:
            return asyncio.run_coroutine_threadsafe(kept(), self._loop).result()
        except BaseException:
            if self._is_over:
                raise TrialOver from None
            raise

    def end(self) -> None:
        """Cancel what the function waits for, and refuse everything from now on."""
        self._is_over = True
        for task in list(self._running):
            task.cancel()


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end at once. Whatever it awaits has to block instead of waiting."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("a blocking coroutine waits for the event loop")
