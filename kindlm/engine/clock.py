"""The clock that runs use outside of tests."""

from __future__ import annotations

import asyncio
import time

__all__ = ["SystemClock"]


class SystemClock:
    """Time of the event loop's machine; implements `ports.Clock`."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait without holding up other executions."""
        await asyncio.sleep(seconds)
