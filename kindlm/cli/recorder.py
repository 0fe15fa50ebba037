"""The recorder of a run: payloads become events of the run's stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kindlm.cli.personal_data import PersonalData, patterns_of
from kindlm.events import ExecutionStarted, Payload, SuiteStarted, new_event
from kindlm.plan import PlannedSuite
from kindlm_store import Append, EventLog, Ticket

__all__ = ["RunRecorder"]


class RunRecorder:
    """Appends to the stream of one run; implements `ports.Recorder`."""

    def __init__(
        self,
        log: EventLog,
        stream: str,
        subject: str | None = None,
        hidden: Mapping[int, PersonalData] | None = None,
    ) -> None:
        self._log = log
        self._stream = stream
        self._subject = subject
        self._hidden = dict(hidden or {})
        self._suite: int | None = None
        self._last: Ticket[Any] | None = None

    def hide_personal_data(self, suites: Iterable[PlannedSuite]) -> None:
        """Record nothing that patterns for personal data match, of the suites that ask for it."""
        for planned in suites:
            if planned.suite.redact_pii:
                self._hidden[planned.ordinal] = PersonalData(patterns_of(planned.suite))

    def about(self, subject: str) -> RunRecorder:
        """Return a recorder for events about `subject`."""
        return RunRecorder(self._log, self._stream, subject, self._hidden)

    def record(self, payload: Payload) -> None:
        """Hand an event to the log."""
        event = new_event(payload, subject=self._subject)
        suite = self._suite_of(payload)
        if suite in self._hidden:
            event = replace(event, data=self._hidden[suite].hide_in(event.data))
        self._last = self._log.submit(Append(self._stream, (event,)))

    async def durable(self) -> None:
        """Return when all that this recorder was given is on disk; wait while the log is behind.

        Events are written in the order they were handed over, so that the last one stands for
        all. Raises `WriteFailedError` if the disk did not take them.
        """
        if self._last is not None:
            await self._last
        await self._log.ready()

    def _suite_of(self, payload: Payload) -> int | None:
        """Return the number of the suite that an event is of; an execution begins by naming it."""
        match payload:
            case SuiteStarted(ordinal=ordinal):
                return ordinal
            case ExecutionStarted(suite=suite):
                self._suite = suite
        return self._suite
