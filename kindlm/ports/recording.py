"""The log of a run, and time."""

from __future__ import annotations

from typing import Protocol

from kindlm.events import Payload

__all__ = ["Clock", "Recorder"]


class Recorder(Protocol):
    """Appends events to the stream of one run."""

    def about(self, subject: str) -> Recorder:
        """Return a recorder for events about `subject`: one attempt of an execution."""
        ...

    def record(self, payload: Payload) -> None:
        """Hand an event to the log; it is durable some time later."""
        ...

    async def durable(self) -> None:
        """Return when all that was recorded before is on disk."""
        ...


class Clock(Protocol):
    """Time, so that tests can hold it."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...
