"""Where a function that runs in a thread of its own hands in its checks."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from kindlm.outcome import CheckResult
from kindlm.ports import Stage
from kindlm.scenarios.stopping import TrialOver
from kindlm.suite import Expectation

__all__ = ["ThreadDesk"]

T = TypeVar("T")


class ThreadDesk:
    """Does what a function in another thread asks for in the event loop that it was made in."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._loop = asyncio.get_running_loop()
        self._running: set[asyncio.Task[Any]] = set()
        self._is_over = False

    def evaluate(self, expectation: Expectation, *, now: bool = False) -> Future[CheckResult]:
        """Check what was said until now; see `ports.Stage`."""
        return self._do(lambda: self._stage.evaluate(expectation, now=now))

    def conclude(
        self, expectation: Expectation, finding: Awaitable[CheckResult] | CheckResult
    ) -> Future[CheckResult]:
        """Record what the script itself found out; see `ports.Stage`."""
        return self._do(lambda: self._stage.conclude(expectation, finding))

    def record_score(self, name: str, value: float) -> None:
        """Record a number from 0 to 1; see `ports.Stage`."""
        self._do(lambda: self._stage.record_score(name, value))

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine does, once it is done."""

        async def kept() -> T:
            task = asyncio.current_task()
            assert task is not None
            self._running.add(task)
            try:
                return await work
            finally:
                self._running.discard(task)

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
        """Cancel what is waited for, and do nothing any more."""
        self._is_over = True
        for task in list(self._running):
            task.cancel()

    def _do(self, work: Callable[[], T]) -> T:
        async def done() -> T:
            return work()

        return self.wait_for(done())
