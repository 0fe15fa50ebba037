"""The recorder of a run: payloads become events of the run's stream."""

from __future__ import annotations

from typing import Any

from kindlm.events import Payload, new_event
from kindlm_store import Append, EventLog, Ticket

__all__ = ["RunRecorder"]


class RunRecorder:
    """Appends to the stream of one run; implements `ports.Recorder`."""

    def __init__(self, log: EventLog, stream: str, subject: str | None = None) -> None:
        self._log = log
        self._stream = stream
        self._subject = subject
        self._last: Ticket[Any] | None = None

    def about(self, subject: str) -> RunRecorder:
        """Return a recorder for events about `subject`."""
        return RunRecorder(self._log, self._stream, subject)

    def record(self, payload: Payload) -> None:
        """Hand an event to the log."""
        event = new_event(payload, subject=self._subject)
        self._last = self._log.submit(Append(self._stream, (event,)))

    async def durable(self) -> None:
        """Return when all that this recorder was given is on disk; wait while the log is behind.

        Events are written in the order they were handed over, so that the last one stands for
        all. Raises `WriteFailedError` if the disk did not take them.
        """
        if self._last is not None:
            await self._last
        await self._log.ready()
