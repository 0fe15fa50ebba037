"""The recorder of a run: payloads become events of the run's stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from threading import RLock

from kindlm.engine.attempt import Finished
from kindlm.events import ExecutionStarted, Payload, SuiteStarted, new_event
from kindlm.guard import guard
from kindlm.plan import PlannedSuite
from kindlm.recording.personal_data import PersonalData, patterns_of
from kindlm_store import Append, EventLog, NewEvent, Ticket

__all__ = ["RunRecorder"]


class _Outbox:
    """The events of a run on their way to the log.

    The log gets the events of one turn of the event loop together, at the end of that turn: before
    any answer can come from the network. While code of a user goes on, which may block or end the
    process within its turn, and from any other thread, it gets each event at once.
    """

    def __init__(self, log: EventLog, stream: str) -> None:
        self.log = log
        self.hiding: dict[int, PersonalData] = {}
        """What hides personal data, by the ordinals of the suites that ask for it."""
        self.thread: ThreadPoolExecutor | None = None
        """Hides personal data: patterns may take their time, which must not look like that of a
        provider. All events of the run go through it then, so that they stay in order."""
        self._stream = stream
        self._lock = RLock()
        self._waiting: list[tuple[NewEvent, PersonalData | None]] = []
        self._ticket: Ticket | None = None
        self._hidden: Future[Ticket] | None = None

    def add(self, event: NewEvent, suite: int | None) -> None:
        """Take an event of a suite, or of the run itself."""
        with self._lock:
            self._waiting.append((event, None if suite is None else self.hiding.get(suite)))
            is_first = len(self._waiting) == 1
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        if guard.is_running_user_code:
            self.flush()
        elif is_first:
            loop.call_soon(self.flush)

    def flush(self) -> None:
        """Hand over what is waiting. If the log does not take it, it goes on waiting."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            if not waiting:
                return
            try:
                if self.thread is None:
                    self._ticket = self._submit([event for event, _ in waiting])
                else:
                    self._hidden = self.thread.submit(self._hide, waiting, self._hidden)
            except Exception:
                self._waiting = waiting
                raise

    async def durable(self) -> None:
        """Return when all events so far are on disk: they are written in order."""
        self.flush()
        ticket = self._ticket
        if self._hidden is not None:
            # Who stops waiting must not take back what was handed over.
            ticket = await asyncio.shield(asyncio.wrap_future(self._hidden))
        if ticket is not None:
            await ticket

    def _hide(
        self,
        waiting: list[tuple[NewEvent, PersonalData | None]],
        before: Future[Ticket] | None,
    ) -> Ticket:
        if before is not None:
            # It is done. If it failed, so does all that follows.
            before.result()
        return self._submit(
            [
                event
                if personal is None
                else event.with_data(personal.hide_in(event.type, event.data))
                for event, personal in waiting
            ]
        )

    def _submit(self, events: list[NewEvent]) -> Ticket:
        return self.log.submit(Append(self._stream, events))


class RunRecorder:
    """Appends to the stream of one run; implements `ports.Recorder`."""

    def __init__(self, log: EventLog, stream: str) -> None:
        self._outbox = _Outbox(log, stream)
        self._subject: str | None = None
        self._suite: int | None = None
        """The suite of the execution that it is about."""

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
                self._outbox.hiding[planned.ordinal] = personal
        if self._outbox.hiding:
            self._outbox.thread = ThreadPoolExecutor(1, thread_name_prefix="kindlm-personal-data")

    def about(self, subject: str) -> RunRecorder:
        """Return a recorder for events about `subject`."""
        recorder = copy(self)
        recorder._subject = subject  # noqa: SLF001 - its own
        return recorder

    def record(self, payload: Payload) -> None:
        """Hand an event to the log.

        Raises:
            ValueError: It cannot be stored.
        """
        if isinstance(payload, ExecutionStarted):
            self._suite = payload.suite
        suite = payload.ordinal if isinstance(payload, SuiteStarted) else self._suite
        self._outbox.add(new_event(payload, subject=self._subject), suite)

    async def durable(self) -> None:
        """Return when all that was recorded is on disk; wait while the log is behind.

        Raises `WriteFailedError` if the disk did not take it.
        """
        await self._outbox.durable()
        await self._outbox.log.ready()

    def close(self) -> None:
        """Wait until everything was handed to the log; nothing is recorded after."""
        self._outbox.flush()
        if self._outbox.thread is not None:
            self._outbox.thread.shutdown()

    def shown(self, finished: Finished) -> Finished:
        """Return how an execution ended as it may be shown: as it is recorded."""
        personal = self._outbox.hiding.get(finished.execution.suite.ordinal)
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
