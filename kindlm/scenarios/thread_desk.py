"""Where a function that runs in a thread of its own hands in its checks."""

from __future__ import annotations

import asyncio
import threading
from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from kindlm.errors import Result, SourceLocation
from kindlm.guard import guard
from kindlm.outcome import CheckResult
from kindlm.ports import ModelReply, Question, Stage
from kindlm.suite import Expectation

T = TypeVar("T")


class TrialOver(BaseException):
    """The trial was cut off, and the function of a test still runs in its thread."""


def raise_unless_of_a_test(error: BaseException) -> None:
    """Raise again what cuts a test off from outside; the rest is what the test itself raised.

    That may be more than an `Exception`: `SystemExit`, and what `pytest.fail` raises.
    """
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit | TrialOver):
        raise error


class ThreadDesk:
    """Runs what a function in another thread asks for in the event loop that it was made in."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._loop = asyncio.get_running_loop()
        self._thread_of_loop = threading.get_ident()
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

    def record_score(self, name: str, value: float, where: SourceLocation | None) -> None:
        """Record a number from 0 to 1; see `ports.Stage`."""
        self._do(lambda: self._stage.record_score(name, value, where))

    async def ask(self, question: Question) -> Result[ModelReply]:
        """Put a question to a model, and block until it is answered; see `ports.Stage`."""
        return self.wait_for(self._stage.ask(question))

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
                " scenario"
                " an `async def test_…(t: Trial)`"
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

    def _do(self, work: Callable[[], T]) -> T:
        async def done() -> T:
            return work()

        return self.wait_for(done())


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end at once. Whatever it awaits has to block instead of waiting."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("a blocking coroutine waits for the event loop")
