"""The writer thread: it owns the write connection and commits what is submitted in groups.

Callers put submissions into a queue and never wait for the disk; the thread takes all that has
gathered since its last commit, writes it in one transaction with one fsync, folds the projections
in the same transaction, and then settles the tickets. When the file cannot be written, nothing
that was submitted is forgotten: `unwritten` hands it out.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import defaultdict, deque
from threading import Condition, Lock, Thread
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from kindlm_store.append import Appender, Recorded, Submission
from kindlm_store.database import immediate, roll_back, truncate_wal
from kindlm_store.errors import ConflictError, StoreClosedError, WriteFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from kindlm_store.project import Projector
    from kindlm_store.verify import SchemaGuard


Value = TypeVar("Value")
_Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]


class Settling:
    """What all tickets of one log share: one lock, and one wake-up per group and event loop."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.settled = Condition(self.lock)

    def settle(self, decided: Iterable[tuple[Ticket[Value], Value | Exception]]) -> None:
        """Give tickets their outcomes and wake whoever waits for them."""
        waiters: list[_Waiter] = []
        with self.lock:
            for ticket, outcome in decided:
                waiters += ticket.decide(outcome)
            self.settled.notify_all()
        wake(waiters)


class Ticket(Generic[Value]):
    """The promise that what was submitted is durable: wait for it with `result` or `await`."""

    __slots__ = ("_done", "_outcome", "_settling", "_waiters")

    def __init__(self, settling: Settling) -> None:
        self._settling = settling
        self._outcome: Value | Exception | None = None
        self._waiters: list[_Waiter] | None = None
        self._done = False

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._done

    def decide(self, outcome: Value | Exception) -> list[_Waiter]:
        """Set the value, or the error to raise, under the lock; returns who is to be woken."""
        self._outcome = outcome
        self._done = True
        waiters, self._waiters = self._waiters, None
        return waiters or []

    def result(self, timeout: float | None = None) -> Value:
        """Block until the outcome is known.

        Args:
            timeout: Seconds; None waits as long as it takes.

        Raises:
            TimeoutError: It is not known in time.
            ConflictError: The append did not fit the stream.
            SealedError: The stream is sealed.
            WriteFailedError: The disk did not take it.
        """
        if not self.done():
            with self._settling.lock:
                self._settling.settled.wait_for(self.done, timeout)
        return self._decided()

    def __await__(self) -> Generator[object, None, Value]:
        if not self.done():
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            with self._settling.lock:
                if self.done():
                    future.set_result(None)
                else:
                    self._waiters = [*(self._waiters or ()), (loop, future)]
            yield from future
        return self._decided()

    def _decided(self) -> Value:
        if not self._done:
            raise TimeoutError
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return cast("Value", self._outcome)


def wake(waiters: Iterable[_Waiter]) -> None:
    """Resolve futures from another thread, with one call into each event loop."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = defaultdict(list)
    for loop, future in waiters:
        by_loop[loop].append(future)
    for loop, futures in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, futures)
        except RuntimeError:
            # The loop was closed: nobody waits any more.
            continue


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


MAX_QUEUED_EVENTS = 4_000
"""Events in the queue from which on `ready` waits."""

MAX_QUEUED_SIZE = 32_000_000
"""Characters of payload in the queue from which on `ready` waits."""

_GROUP_EVENTS = 2_000
"""Events in one transaction: enough to make fsync cheap, few enough for others to get a turn."""


class _Batch(NamedTuple):
    """A submission in the queue."""

    submission: Submission
    ticket: Ticket[Recorded]
    events: int
    size: int


class _Command(NamedTuple):
    """Something else to do on the write connection, in its turn."""

    run: Callable[[sqlite3.Connection], Any]
    ticket: Ticket[Any]


class Writer:
    """Queue and thread of one log."""

    def __init__(
        self, connection: sqlite3.Connection, projector: Projector, guard: SchemaGuard
    ) -> None:
        self._connection = connection
        self._guard = guard
        self._appender = Appender(connection)
        self._projector = projector
        self._settling = Settling()
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._queue: deque[_Batch | _Command] = deque()
        self._queued_events = 0
        self._queued_size = 0
        self._held_back: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._idle = False
        self._closing = False
        self._failure: WriteFailedError | None = None
        self._unwritten: list[Submission] = []
        self._thread = Thread(target=self._work, name="kindlm-store-writer", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> WriteFailedError | None:
        """Why the file could not be written; None as long as it can."""
        return self._failure

    @property
    def unwritten(self) -> list[Submission]:
        """What was submitted and not written, in order, after a failure."""
        with self._lock:
            return list(self._unwritten)

    def submit(self, submission: Submission, size: int) -> Ticket[Recorded]:
        """Put a submission into the queue.

        Raises:
            StoreClosedError: The log is closed.
        """
        events = sum([len(append.events) for append in submission])
        batch = _Batch(submission, Ticket(self._settling), events, size)
        with self._lock:
            self._refuse_if_closing()
            failure = self._failure
            if failure is None:
                self._queue.append(batch)
                self._queued_events += batch.events
                self._queued_size += batch.size
                if self._idle:
                    self._changed.notify()
            else:
                self._unwritten.append(submission)
        if failure is not None:
            self._settling.settle([(batch.ticket, failure)])
        return batch.ticket

    def call(self, run: Callable[[sqlite3.Connection], Any]) -> Ticket[Any]:
        """Run something on the write connection, after all that was submitted before.

        Raises:
            StoreClosedError: The log is closed.
        """
        ticket: Ticket[Any] = Ticket(self._settling)
        with self._lock:
            self._refuse_if_closing()
            failure = self._failure
            if failure is None:
                self._queue.append(_Command(run, ticket))
                if self._idle:
                    self._changed.notify()
        if failure is not None:
            self._settling.settle([(ticket, failure)])
        return ticket

    async def ready(self) -> None:
        """Return when the queue is below its bounds, in events and in size."""
        while self._is_full():
            loop = asyncio.get_running_loop()
            below = loop.create_future()
            with self._lock:
                if self._is_full():
                    self._held_back.append((loop, below))
                else:
                    below.set_result(None)
            await below

    def close(self) -> None:
        """Write what is queued, end the thread and close the connection. Idempotent."""
        with self._lock:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _is_full(self) -> bool:
        return self._queued_events >= MAX_QUEUED_EVENTS or self._queued_size >= MAX_QUEUED_SIZE

    def _refuse_if_closing(self) -> None:
        if self._closing:
            message = "the event log is closed"
            raise StoreClosedError(message)

    def _work(self) -> None:
        """Body of the thread."""
        try:
            while work := self._take():
                try:
                    if isinstance(work, _Command):
                        self._run(work)
                    else:
                        self._commit(work)
                # Whatever it is, nobody may wait for ever: recorded as the failure of the log.
                except Exception as error:  # noqa: BLE001
                    self._fail(work, error)
        finally:
            self._disconnect()

    def _take(self) -> list[_Batch] | _Command | None:
        """The next command, or the submissions up to it; None when closing and all is done."""
        with self._lock:
            while not self._queue:
                if self._closing:
                    return None
                self._idle = True
                self._changed.wait()
                self._idle = False
            first = self._queue[0]
            if isinstance(first, _Command):
                self._queue.popleft()
                return first
            group: list[_Batch] = []
            events = 0
            while self._queue and events < _GROUP_EVENTS:
                batch = self._queue[0]
                if isinstance(batch, _Command):
                    break
                group.append(batch)
                events += batch.events
                self._queue.popleft()
            return group

    def _run(self, command: _Command) -> None:
        try:
            value = command.run(self._connection)
        # The caller gets it: a command is not a reason to stop writing.
        except Exception as error:  # noqa: BLE001
            roll_back(self._connection)
            self._appender.forget()
            self._settling.settle([(command.ticket, error)])
        else:
            self._appender.forget()
            self._settling.settle([(command.ticket, value)])

    def _commit(self, group: Sequence[_Batch]) -> None:
        try:
            outcomes = self._transaction([batch.submission for batch in group])
        except sqlite3.IntegrityError:
            # One of them repeats an event id: only that one is refused.
            for batch in group:
                self._settle([batch], [self._alone(batch.submission)])
        else:
            self._settle(group, outcomes)

    def _settle(
        self, group: Sequence[_Batch], outcomes: Sequence[Recorded | ConflictError]
    ) -> None:
        self._done_with(group)
        self._settling.settle(
            (batch.ticket, outcome) for batch, outcome in zip(group, outcomes, strict=True)
        )

    def _transaction(self, submissions: Sequence[Submission]) -> list[Recorded | ConflictError]:
        try:
            with immediate(self._connection):
                # A trigger may have been made since the file was opened.
                self._guard.check(self._connection)
                outcomes = self._appender.write(submissions)
                self._projector.fold()
        except BaseException:
            self._appender.forget()
            raise
        return outcomes

    def _alone(self, submission: Submission) -> Recorded | ConflictError:
        try:
            return self._transaction([submission])[0]
        except sqlite3.IntegrityError as error:
            streams = ", ".join(append.stream for append in submission)
            conflict = ConflictError(streams, "an event with this id is recorded already")
            conflict.__cause__ = error
            return conflict

    def _done_with(self, group: Sequence[_Batch]) -> None:
        with self._lock:
            self._queued_events -= sum(batch.events for batch in group)
            self._queued_size -= sum(batch.size for batch in group)
            released = []
            if not self._is_full():
                released, self._held_back = self._held_back, []
        wake(released)

    def _fail(self, work: Sequence[_Batch] | _Command, error: Exception) -> None:
        """Stop writing: everything in the queue, now and later, is kept as unwritten."""
        failure = WriteFailedError(f"the event log cannot be written: {error}")
        failure.__cause__ = error
        first = [work] if isinstance(work, _Command) else work
        with self._lock:
            self._failure = failure
            abandoned = [item for item in (*first, *self._queue) if not item.ticket.done()]
            self._queue.clear()
            self._unwritten += [item.submission for item in abandoned if isinstance(item, _Batch)]
            self._queued_events = self._queued_size = 0
            released, self._held_back = self._held_back, []
        wake(released)
        self._settling.settle((item.ticket, failure) for item in abandoned)

    def _disconnect(self) -> None:
        try:
            truncate_wal(self._connection)
        except sqlite3.Error:
            # Everything is committed; whoever opens the file next writes the WAL back.
            pass
        finally:
            self._connection.close()
