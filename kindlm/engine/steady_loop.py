"""The event loop of a run, which goes on if code under test stops the clock."""

from __future__ import annotations

import asyncio
import time


class SteadyLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock goes on if tests or fixtures, as by freezegun, stop `time`."""

    _monotonic = staticmethod(time.monotonic)

    def time(self) -> float:
        """Return the time of the loop in seconds."""
        return self._monotonic()
