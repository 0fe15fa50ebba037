"""Tickets: what a caller holds while the writer thread commits its events."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from threading import Condition, Lock
from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

Value = TypeVar("Value")
_Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]


class Settling:
    """What all tickets of one log share: one lock, and one wake-up per group and event loop."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.settled = Condition(self.lock)

    def settle(self, decided: Iterable[tuple[Ticket[Value], Value | Exception]]) -> None:
        """Give tickets their outcomes and wake whoever waits for them."""
        waiters: list[_Waiter] = []
        with self.lock:
            for ticket, outcome in decided:
                waiters += ticket.decide(outcome)
            self.settled.notify_all()
        wake(waiters)


class Ticket(Generic[Value]):
    """The promise that what was submitted is durable: wait for it with `result` or `await`."""

    __slots__ = ("_done", "_outcome", "_settling", "_waiters")

    def __init__(self, settling: Settling) -> None:
        self._settling = settling
        self._outcome: Value | Exception | None = None
        self._waiters: list[_Waiter] | None = None
        self._done = False

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._done

    def decide(self, outcome: Value | Exception) -> list[_Waiter]:
        """Set the value, or the error to raise, under the lock; returns who is to be woken."""
        self._outcome = outcome
        self._done = True
        waiters, self._waiters = self._waiters, None
        return waiters or []

    def result(self, timeout: float | None = None) -> Value:
        """Block until the outcome is known.

        Args:
            timeout: Seconds; None waits as long as it takes.

        Raises:
            TimeoutError: It is not known in time.
            ConflictError: The append did not fit the stream.
            SealedError: The stream is sealed.
            WriteFailedError: The disk did not take it.
        """
        if not self.done():
            with self._settling.lock:
                self._settling.settled.wait_for(self.done, timeout)
        return self._decided()

    def __await__(self) -> Generator[object, None, Value]:
        if not self.done():
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            with self._settling.lock:
                if self.done():
                    future.set_result(None)
                else:
                    self._waiters = [*(self._waiters or ()), (loop, future)]
            yield from future
        return self._decided()

    def _decided(self) -> Value:
        if not self._done:
            raise TimeoutError
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return cast("Value", self._outcome)


def wake(waiters: Iterable[_Waiter]) -> None:
    """Resolve futures from another thread, with one call into each event loop."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = defaultdict(list)
    for loop, future in waiters:
        by_loop[loop].append(future)
    for loop, futures in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, futures)
        except RuntimeError:
            # The loop was closed: nobody waits any more.
            continue


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
