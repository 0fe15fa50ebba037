"""Steering a run that goes on from other threads: end it, or change how fast it may call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kindlm.engine.resources import LiveRun
from kindlm.engine.stop import Stop


class Steering:
    """What others than the run itself ask of it, from any thread and as often as they like.

    What is asked before the run starts holds from its start on. After its end, nothing does.
    """

    def __init__(self) -> None:
        self._reason: str | None = None
        self._at_once = False
        self._max_rpm: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Stop | None = None
        self._run: LiveRun | None = None

    def stop(self, reason: str, *, at_once: bool = False) -> None:
        """Ask that nothing new starts; `at_once` also gives what is in flight its grace period."""
        self._reason = self._reason or reason
        self._at_once = self._at_once or at_once
        self._pass_on()

    def set_max_rpm(self, max_rpm: float) -> None:
        """Set how many calls a minute, above 0, each provider and agent gets from now on."""
        self._max_rpm = max_rpm
        self._pass_on()

    @contextmanager
    def of(self, stop: Stop) -> Iterator[None]:
        """Let others steer the run of the running event loop while the context lasts."""
        self._loop, self._stop = asyncio.get_running_loop(), stop
        self._heed()
        try:
            yield
        finally:
            self._loop = None

    def started(self, run: LiveRun) -> None:
        """Take over a run, or a part of one, whose executions are about to start."""
        self._run = run
        self._heed()

    def _pass_on(self) -> None:
        # Read after what was asked is written: `of` does both the other way round.
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(self._heed)

    def _heed(self) -> None:
        if self._reason is not None and self._stop is not None:
            (self._stop.request if self._at_once else self._stop.wind_down)(self._reason)
        if self._max_rpm is not None and self._run is not None:
            self._run.set_max_rpm(self._max_rpm)
