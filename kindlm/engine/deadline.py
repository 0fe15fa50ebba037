"""The time that one execution may take, which stands still while it waits for its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from kindlm.ports import Clock

__all__ = ["Deadline"]


class Deadline:
    """Ends the task that enters it with `TimeoutError` when `seconds` of its own time are over.

    What an execution waits for because of other executions is not its own time: a provider that
    allows few calls a minute must not make the executions at the end of the queue fail.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._clock = clock
        self._ends = clock.monotonic() + seconds
        self._timeout = asyncio.timeout(seconds)
        self._pauses = 0
        self._left = seconds

    def leaves(self, seconds: float) -> bool:
        """Tell whether more than `seconds` are left."""
        if self._pauses:
            return seconds < self._left
        return self._clock.monotonic() + seconds < self._ends

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the time stand still until nobody pauses it any more."""
        if self._timeout.expired():
            yield  # the end is on its way to the task already
            return
        if self._pauses == 0:
            self._left = self._ends - self._clock.monotonic()
            self._timeout.reschedule(None)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                self._ends = self._clock.monotonic() + self._left
                self._timeout.reschedule(asyncio.get_running_loop().time() + self._left)

    async def __aenter__(self) -> Self:
        """Let the time count."""
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop counting; raise `TimeoutError` if the time was over."""
        await self._timeout.__aexit__(kind, error, trace)
