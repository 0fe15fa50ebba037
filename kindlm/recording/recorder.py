"""The recorder of a run: payloads become events of the run's stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from threading import RLock

from kindlm.engine.attempt import Finished
from kindlm.events import ExecutionStarted, Payload, SuiteStarted, new_event
from kindlm.guard import guard
from kindlm.plan import PlannedSuite
from kindlm.recording.personal_data import PersonalData, patterns_of
from kindlm_store import Append, EventLog, NewEvent, Ticket


@dataclass(slots=True)
class _Outbox:
    """The events of a run on their way to the log, each with what hides personal data in it.

    `hiding` has that by the ordinals of the suites that ask for it. Patterns may take their time,
    which must not look like that of a provider: a `thread` hides then, and all events of the run
    go through it, to stay in order. `ticket` and `hidden` are of what was handed over last.
    """

    log: EventLog
    stream: str
    hiding: dict[int, PersonalData] = field(default_factory=dict)
    thread: ThreadPoolExecutor | None = None
    lock: RLock = field(default_factory=RLock)
    waiting: list[tuple[NewEvent, PersonalData | None]] = field(default_factory=list)
    ticket: Ticket | None = None
    hidden: Future[Ticket] | None = None

    def flush(self) -> None:
        """Hand over what is waiting. If the log does not take it, it goes on waiting."""
        with self.lock:
            waiting, self.waiting = self.waiting, []
            if not waiting:
                return
            events, personal = zip(*waiting, strict=True)
            try:
                if self.thread is None:
                    self.ticket = self.log.submit(Append(self.stream, events))
                else:
                    self.hidden = self.thread.submit(self._hide, events, personal, self.hidden)
            except Exception:
                self.waiting = waiting
                raise

    def _hide(
        self,
        events: Sequence[NewEvent],
        personal: Sequence[PersonalData | None],
        before: Future[Ticket] | None,
    ) -> Ticket:
        if before is not None:
            # It is done. If it failed, so does all that follows.
            before.result()
        hidden = [
            event if hides is None else event.with_data(hides.hide_in(event.type, event.data))
            for event, hides in zip(events, personal, strict=True)
        ]
        return self.log.submit(Append(self.stream, hidden))


class RunRecorder:
    """Appends to the stream of one run; implements `ports.Recorder`.

    The log gets the events of one turn of the event loop together, at the end of that turn: before
    any answer can come from the network. While code of a user goes on, which may block or end the
    process within its turn, and from any other thread, it gets each event at once.
    """

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
        tell = cache(given_up)
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
        outbox, event = self._outbox, new_event(payload, subject=self._subject)
        with outbox.lock:
            outbox.waiting.append((event, None if suite is None else outbox.hiding.get(suite)))
            is_first = len(outbox.waiting) == 1
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            outbox.flush()
            return
        if guard.notes.going:
            outbox.flush()
        elif is_first:
            loop.call_soon(outbox.flush)

    async def durable(self) -> None:
        """Return when all that was recorded is on disk; wait while the log is behind.

        Raises `WriteFailedError` if the disk did not take it.
        """
        outbox = self._outbox
        outbox.flush()
        # Events are written in order: the ticket of the last ones is that of all.
        ticket = outbox.ticket
        if outbox.hidden is not None:
            # Who stops waiting must not take back what was handed over.
            ticket = await asyncio.shield(asyncio.wrap_future(outbox.hidden))
        if ticket is not None:
            await ticket
        await outbox.log.ready()

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
