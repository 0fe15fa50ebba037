"""The recorder of a run: payloads become events of the run's stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from kindlm.engine.attempt import Finished
from kindlm.events import ExecutionStarted, Payload, SuiteStarted, new_event
from kindlm.plan import PlannedSuite
from kindlm.recording.personal_data import PersonalData, patterns_of
from kindlm_store import Append, EventLog, Ticket

__all__ = ["RunRecorder"]


@dataclass(slots=True)
class _Hiding:
    """Which suites hide personal data, and the thread that does it.

    Patterns may take their time, which must not look like that of a provider. From then on all
    events of the run go through the thread, so that they stay in order.
    """

    suites: dict[int, PersonalData] = field(default_factory=dict)
    thread: ThreadPoolExecutor | None = None


class RunRecorder:
    """Appends to the stream of one run; implements `ports.Recorder`."""

    def __init__(
        self, log: EventLog, stream: str, subject: str | None = None, hiding: _Hiding | None = None
    ) -> None:
        self._log = log
        self._stream = stream
        self._subject = subject
        self._hiding = hiding or _Hiding()
        self._suite: int | None = None
        self._handed_over: deque[Future[Ticket[Any]]] = deque()
        self._last: Ticket[Any] | None = None

    def hide_personal_data(
        self, suites: Iterable[PlannedSuite], given_up: Callable[[str], None]
    ) -> None:
        """Record nothing that patterns for personal data match, of the suites that ask for it.

        `given_up` is told, from another thread, of each pattern that takes too long, once.
        """
        told: set[str] = set()

        def tell(pattern: str) -> None:
            if pattern not in told:
                told.add(pattern)
                given_up(pattern)

        for planned in suites:
            if planned.suite.redact_pii:
                personal = PersonalData(patterns_of(planned.suite), tell)
                self._hiding.suites[planned.ordinal] = personal
        if self._hiding.suites:
            self._hiding.thread = ThreadPoolExecutor(1, thread_name_prefix="kindlm-personal-data")

    def about(self, subject: str) -> RunRecorder:
        """Return a recorder for events about `subject`."""
        return RunRecorder(self._log, self._stream, subject, self._hiding)

    def record(self, payload: Payload) -> None:
        """Hand an event to the log."""
        event = new_event(payload, subject=self._subject)
        if self._hiding.thread is None:
            self._last = self._log.submit(Append(self._stream, (event,)))
            return
        suite = self._suite_of(payload)
        personal = None if suite is None else self._hiding.suites.get(suite)

        def submit() -> Ticket[Any]:
            data = event.data if personal is None else personal.hide_in(event.type, event.data)
            return self._log.submit(Append(self._stream, (replace(event, data=data),)))

        self._handed_over.append(self._hiding.thread.submit(submit))

    async def durable(self) -> None:
        """Return when all that this recorder was given is on disk; wait while the log is behind.

        Events are written in the order they were handed over, so that the last one stands for
        all. Raises `WriteFailedError` if the disk did not take them.
        """
        while self._handed_over:
            # Who stops waiting must not take back what was handed over.
            self._last = await asyncio.shield(asyncio.wrap_future(self._handed_over[0]))
            self._handed_over.popleft()
        if self._last is not None:
            await self._last
        await self._log.ready()

    def close(self) -> None:
        """Wait until everything was handed to the log; nothing is recorded after."""
        if self._hiding.thread is not None:
            self._hiding.thread.shutdown()

    def shown(self, finished: Finished) -> Finished:
        """Return how an execution ended as it may be shown: as it is recorded."""
        personal = self._hiding.suites.get(finished.execution.suite.ordinal)
        if personal is None:
            return finished
        error = finished.error
        return replace(
            finished,
            error=error and replace(error, message=personal.hide_told(error.message)),
            failed=tuple(
                replace(result, message=personal.hide_told(result.message, result.kind))
                for result in finished.failed
            ),
        )

    def _suite_of(self, payload: Payload) -> int | None:
        """Return the number of the suite that an event is of; an execution begins by naming it."""
        match payload:
            case SuiteStarted(ordinal=ordinal):
                return ordinal
            case ExecutionStarted(suite=suite):
                self._suite = suite
        return self._suite
