"""Waiting until something has changed, or until a time has passed."""

from __future__ import annotations

import asyncio
import math

from kindlm.ports import Clock

__all__ = ["News"]


class News:
    """Wakes whoever waits; used from one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listeners: set[asyncio.Future[None]] = set()

    def tell(self) -> None:
        """Wake all that wait: something has changed."""
        for listener in self._listeners:
            if not listener.done():
                listener.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Return when something has changed, or after so many seconds; infinite is no limit."""
        listener: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listeners.add(listener)
        try:
            if seconds == math.inf:
                await listener
                return
            sleep = asyncio.ensure_future(self._clock.sleep(seconds))
            try:
                await asyncio.wait({listener, sleep}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleep.cancel()
        finally:
            self._listeners.discard(listener)
