"""The recorder of a run: it encodes payloads as events, and appends them to the run's stream.

With `record.redactPii`, it hides personal data (`personal_data.py`). Checks see the unhidden texts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from threading import RLock
from typing import TYPE_CHECKING, Any

from kindlm.config.diagnostics import Diagnostic
from kindlm.dataclass import replace
from kindlm.engine.attempt import Finished
from kindlm.errors import KindlmError
from kindlm.events.codec import Payload, new_event
from kindlm.events.execution_events import AssertionEvaluated, ExecutionStarted
from kindlm.events.run import RunAborted, RunInterrupted, SuiteSkipped, SuiteStarted
from kindlm.suite import Suite
from kindlm_store import Append, EventLog, NewEvent, Ticket

if TYPE_CHECKING:
    from kindlm.recording.personal_data import PersonalData
    from kindlm.recording.request import SkippedSuite


@dataclass(slots=True)
class _Outbox:
    """The events of a run on their way to the log, each with the `PersonalData` that it needs.

    `hiding` has the `PersonalData` of suites that ask for it, by ordinal, and `of_all` that of all
    of them together, for what is about the whole run. Patterns may be slow, and must not delay the
    event loop: a `thread` hides the data, and all events of the run pass through it to keep their
    order. `last` is the ticket of the last submitted events, or its future; `awaited` wraps it for
    all coroutines that wait for it.
    """

    log: EventLog
    stream: str
    hiding: dict[int, PersonalData] = field(default_factory=dict)
    of_all: PersonalData | None = None
    thread: ThreadPoolExecutor | None = None
    lock: RLock = field(default_factory=RLock)
    waiting: list[tuple[NewEvent, PersonalData | None]] = field(default_factory=list)
    last: Future[Any] | None = None
    awaited: asyncio.Future[Any] | None = None

    def flush(self) -> None:
        """Submit the waiting events to the log; keep them if it refuses them."""
        with self.lock:
            if not self.waiting:
                return
            if self.thread is None:
                events = [event for event, _ in self.waiting]
                self.last = self.log.submit(Append(self.stream, events))
            else:
                self.last = self.thread.submit(self._hide, self.waiting, self.last)
            self.waiting, self.awaited = [], None

    def _hide(
        self, waiting: Sequence[tuple[NewEvent, PersonalData | None]], before: Future[Ticket] | None
    ) -> Ticket:
        if before is not None:
            # It is done, in this thread; after an error, all later events fail, too.
            before.result()
        hidden = [
            event if hides is None else event.with_data(hides.hide_in(event.type, event.data))
            for event, hides in waiting
        ]
        return self.log.submit(Append(self.stream, hidden))


class RunRecorder:
    """Appends to the stream of one run; implements `ports.Recorder`.

    The log gets all events of one turn of the event loop together, at the end of the turn and
    before the network is read. It gets each event at once from other threads.
    """

    def __init__(
        self, log: EventLog, stream: str, subject: str | None = None, outbox: _Outbox | None = None
    ) -> None:
        self._outbox = outbox or _Outbox(log, stream)
        self._subject = subject
        self._suite: int | None = None
        """The suite of the execution that it is about."""

    def hide_personal_data(self, suites: Mapping[int, Suite | SkippedSuite]) -> None:
        """Hide personal data in events of the suites that ask for it, by ordinal."""
        asking = {at: suite for at, suite in suites.items() if suite.redact_pii}
        if not asking:
            return
        from kindlm.recording.personal_data import PersonalData, patterns_of  # few suites ask

        patterns = {at: patterns_of(suite) for at, suite in asking.items()}
        self._outbox.hiding = {at: PersonalData(each) for at, each in patterns.items()}
        self._outbox.of_all = PersonalData(tuple(dict.fromkeys(chain(*patterns.values()))))
        self._outbox.thread = ThreadPoolExecutor(1, thread_name_prefix="kindlm-personal-data")

    def about(self, subject: str) -> RunRecorder:
        """Return a recorder for events about `subject`."""
        outbox = self._outbox
        return RunRecorder(outbox.log, outbox.stream, subject, outbox)

    def record(self, payload: Payload) -> None:
        """Hand an event to the log; raise `ValueError` if it cannot be stored."""
        if isinstance(payload, ExecutionStarted):
            self._suite = payload.suite
        outbox, event = self._outbox, new_event(payload, subject=self._subject)
        match payload:
            case SuiteStarted() | SuiteSkipped():
                hides = outbox.hiding.get(payload.ordinal)
            case RunInterrupted() | RunAborted():
                hides = outbox.of_all
            case AssertionEvaluated(only_numbers=True):
                hides = None
            case _:
                hides = None if self._suite is None else outbox.hiding.get(self._suite)
        with outbox.lock:
            outbox.waiting.append((event, hides))
            is_first = len(outbox.waiting) == 1
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            outbox.flush()
            return
        if is_first:
            loop.call_soon(outbox.flush)

    async def durable(self) -> None:
        """Return when all recorded events are on disk; raise `WriteFailedError` if that failed."""
        outbox = self._outbox
        if outbox.waiting:
            # Further events of this turn go to the log together with it.
            await asyncio.sleep(0)
        with outbox.lock:
            # The lock waits for another thread that submits events.
            outbox.flush()
            if outbox.awaited is None and outbox.last is not None:
                outbox.awaited = asyncio.wrap_future(outbox.last)
            awaited = outbox.awaited
        # Events are written in order, so the last ticket covers all. Shielded, since a cancelled
        # waiter must not cancel the write.
        ticket = None if awaited is None else await asyncio.shield(awaited)
        if ticket is not None:  # of the thread that hides personal data
            await ticket

    def close(self) -> None:
        """Submit all events to the log; nothing may be recorded afterwards."""
        self._outbox.flush()
        if self._outbox.thread is not None:
            self._outbox.thread.shutdown()

    def shown(self, finished: Finished) -> Finished:
        """Return the end of an execution without personal data, for display."""
        personal = self._outbox.hiding.get(finished.execution.suite.ordinal)
        if personal is None:
            return finished
        hide, error = personal.hide_in_excerpt, finished.error
        return replace(
            finished,
            error=error and replace(error, message=hide(error.message)),
            failed=tuple(replace(each, message=hide(each.message)) for each in finished.failed),
        )

    def shown_problem(self, problem: KindlmError | Diagnostic) -> KindlmError | Diagnostic:
        """Return a problem without personal data, which the output of a program may contain."""
        personal = self._outbox.of_all
        if personal is None:
            return problem
        error = problem if isinstance(problem, KindlmError) else problem.error
        hide, hint = personal.hide_in_excerpt, error.hint
        error = replace(error, message=hide(error.message), hint=hint and hide(hint))
        return error if isinstance(problem, KindlmError) else replace(problem, error=error)
