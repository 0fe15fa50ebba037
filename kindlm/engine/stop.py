"""Asking a run to stop: gently, with a grace period, or at once."""

from __future__ import annotations

import asyncio
import contextlib

__all__ = ["Stop"]


class Stop:
    """Asks a run to stop: nothing new starts, and what is in flight gets a grace period.

    `reason` says why, for the record and the user; `aborted` tells that a limit of the run (its
    money, its time) was the reason, rather than a person.
    """

    def __init__(self, grace_s: float = 5.0) -> None:
        self.reason: str | None = None
        self.aborted = False
        self._grace_s = grace_s
        self._winding_down = asyncio.Event()
        self._requested = asyncio.Event()
        self._at_once = asyncio.Event()

    def request(self, reason: str) -> None:
        """Ask to stop, from the event loop's thread; the first reason stays."""
        self.wind_down(reason)
        self._requested.set()

    def wind_down(self, reason: str) -> None:
        """Ask that nothing new starts; what is in flight takes the time that it needs."""
        self.reason = self.reason or reason
        self._winding_down.set()

    def abort(self, reason: str, *, cut_off: bool = False) -> None:
        """Wind down since a limit is reached; with `cut_off`, what is in flight gets its grace."""
        if self.reason is None:
            self.aborted = True
        self.wind_down(reason)
        if cut_off:
            self._requested.set()

    def leave_undone(self, reason: str) -> None:
        """Say why not everything will be run; whatever is not concerned by that goes on."""
        if self.reason is None:
            self.reason, self.aborted = reason, True

    @property
    def is_requested(self) -> bool:
        """Whether what is in flight has been asked to end, too."""
        return self._requested.is_set()

    @property
    def is_winding_down(self) -> bool:
        """Whether nothing new is to start."""
        return self._winding_down.is_set()

    async def winding_down(self) -> None:
        """Return when nothing new is to start."""
        await self._winding_down.wait()

    async def requested(self) -> None:
        """Return when what is in flight is asked to end."""
        await self._requested.wait()

    def at_once(self) -> None:
        """End the grace period now."""
        self._at_once.set()

    async def grace_over(self) -> None:
        """Return when a stop was requested and the grace period has passed or was ended."""
        await self._requested.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._at_once.wait(), self._grace_s)
