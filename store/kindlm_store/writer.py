"""The writer thread: it owns the write connection and commits submissions in groups.

Callers put submissions into a queue and never wait for the disk. The thread writes everything since
its last commit in one transaction with one fsync, folds the projections in the same transaction,
and then settles the tickets. If the file cannot be written, `unwritten` returns all submissions.
"""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from concurrent.futures import Future
from threading import Condition, Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from kindlm_store.append import Appender
from kindlm_store.database import FORKED, forks, immediate, roll_back, truncate_wal
from kindlm_store.store_errors import ConflictError, StoreClosedError, WriteFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from kindlm_store.append import Submission
    from kindlm_store.new_event import Append
    from kindlm_store.projecting import Projector
    from kindlm_store.reading import Head
    from kindlm_store.schema_check import SchemaGuard


class Ticket(Future[Any]):
    """The promise that submitted events are durable: wait for it with `result` or `await`."""

    def cancel(self) -> bool:
        """Return False: submitted events are written even if no one waits."""
        return False

    def __await__(self) -> Generator[object, None, Any]:
        # It takes long to load, and programs that only read do not need it.
        import asyncio

        return asyncio.wrap_future(self).__await__()


MAX_QUEUED_EVENTS = 4_000
"""`ready` waits while the queue has this number of events, or more."""

MAX_QUEUED_SIZE = 32_000_000
"""`ready` waits while the queue has this number of characters of payload, or more."""

_GROUP_EVENTS = 2_000
"""Events in one transaction: enough to make fsync cheap, few enough for others to get a turn."""


_LINGER_S = 0.025
"""Seconds from one commit to the next while events keep coming, since commits are costly."""

_QUIET_S = 0.002
"""The thread commits after this time (seconds) without a submission."""


class _Submitted(NamedTuple):
    """A submission in the queue."""

    submission: Submission
    ticket: Ticket
    events: int
    size: int


class _Command(NamedTuple):
    """Other work on the write connection, in its turn."""

    run: Callable[[sqlite3.Connection], Any]
    ticket: Ticket


class Writer:
    """The queue and the thread of one log.

    `failure` is why the file could not be written; None as long as it can. `heads` has the durable
    ends of the streams that were written to.
    """

    def __init__(
        self, connection: sqlite3.Connection, projector: Projector, guard: SchemaGuard
    ) -> None:
        self._connection = connection
        self._forks = forks.count
        self._guard = guard
        self._appender = Appender(connection)
        self._projector = projector
        self._changed = Condition(Lock())
        self._queue: deque[_Submitted | _Command] = deque()
        self._queued_events = 0
        self._queued_size = 0
        self._room: Ticket | None = None
        self._idle = False
        self._committed_at = 0.0
        self._closing = False
        self.failure: WriteFailedError | None = None
        self.heads: dict[str, Head] = {}
        self._unwritten: list[Append] = []
        self._thread = Thread(target=self._work, name="kindlm-store-writer", daemon=True)
        self._thread.start()

    @property
    def unwritten(self) -> list[Append]:
        """After a failure, the appends that were submitted and not written, in order."""
        with self._changed:
            return list(self._unwritten)

    def submit(self, submission: Submission) -> Ticket:
        """Put a submission into the queue.

        Raises:
            StoreClosedError: The log is closed.
        """
        events = size = 0
        for append in submission:
            events += len(append.events)
            for event in append.events:
                size += event.size
        return self._enqueue(_Submitted(submission, Ticket(), events, size))

    def call(self, run: Callable[[sqlite3.Connection], Any]) -> Ticket:
        """Call a function with the write connection, after everything submitted before.

        Raises:
            StoreClosedError: The log is closed.
        """
        return self._enqueue(_Command(run, Ticket()))

    def _enqueue(self, item: _Submitted | _Command) -> Ticket:
        # Another thread may have held the lock when the process was forked.
        if forks.count != self._forks:
            raise StoreClosedError(FORKED)
        with self._changed:
            if self._closing:
                message = "the event log is closed"
                raise StoreClosedError(message)
            failure = self.failure
            if failure is None:
                self._queue.append(item)
                if isinstance(item, _Submitted):
                    self._queued_events += item.events
                    self._queued_size += item.size
                    if self._idle:
                        self._changed.notify()
                else:
                    # The thread may be in `_linger`.
                    self._changed.notify()
            elif isinstance(item, _Submitted):
                self._unwritten += item.submission
        if failure is not None:
            item.ticket.set_exception(failure)
        return item.ticket

    async def ready(self) -> None:
        """Wait until the queue is below its bounds."""
        while self._is_full():
            if forks.count != self._forks:
                raise StoreClosedError(FORKED)
            with self._changed:
                if not self._is_full():
                    return
                room = self._room = self._room or Ticket()
            await room

    def close(self) -> None:
        """Write the queue, end the thread and close the connection; safe to repeat."""
        if forks.count != self._forks:
            return
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _is_full(self) -> bool:
        return self._queued_events >= MAX_QUEUED_EVENTS or self._queued_size >= MAX_QUEUED_SIZE

    def _work(self) -> None:
        try:
            while work := self._take():
                try:
                    if isinstance(work, _Command):
                        self._run(work)
                    else:
                        self._commit(work)
                # No caller may wait forever, whatever the error.
                except Exception as error:  # noqa: BLE001
                    self._fail(work, error)
        finally:
            self._disconnect()

    def _take(self) -> list[_Submitted] | _Command | None:
        """Return the next command, or the submissions before it; None at the end."""
        with self._changed:
            while not self._queue:
                if self._closing:
                    return None
                self._idle = True
                self._changed.wait()
                self._idle = False
            self._linger()
            first = self._queue[0]
            if isinstance(first, _Command):
                self._queue.popleft()
                return first
            group: list[_Submitted] = []
            events = 0
            while self._queue and events < _GROUP_EVENTS:
                item = self._queue[0]
                if isinstance(item, _Command):
                    break
                group.append(item)
                events += item.events
                self._queue.popleft()
            return group

    def _linger(self) -> None:
        """Wait before the next commit while submissions keep coming."""
        length = 0
        while (
            length < len(self._queue)
            and not isinstance(self._queue[-1], _Command)
            and self._queued_events < _GROUP_EVENTS
            and not self._closing
            and (left := self._committed_at + _LINGER_S - time.monotonic()) > 0
        ):
            length = len(self._queue)
            self._changed.wait(min(left, _QUIET_S))
        self._committed_at = time.monotonic()

    def _run(self, command: _Command) -> None:
        try:
            value = command.run(self._connection)
        # The caller gets the error of a command; the log goes on writing.
        except Exception as error:  # noqa: BLE001
            roll_back(self._connection)
            self._appender.forget()
            command.ticket.set_exception(error)
        else:
            self._appender.forget()
            command.ticket.set_result(value)

    def _commit(self, group: Sequence[_Submitted]) -> None:
        try:
            outcomes = self._transaction([item.submission for item in group])
        except sqlite3.IntegrityError:
            # A submission repeats an event id: only that submission is refused.
            for item in group:
                self._settle([item], [self._alone(item.submission)])
        else:
            self._settle(group, outcomes)

    def _transaction(self, submissions: Sequence[Submission]) -> list[ConflictError | None]:
        try:
            with immediate(self._connection):
                # Another program may have created a trigger.
                self._guard.check(self._connection)
                outcomes = self._appender.write(submissions)
                self._projector.fold()
        except BaseException:
            self._appender.forget()
            raise
        self.heads |= self._appender.ends
        return outcomes

    def _alone(self, submission: Submission) -> ConflictError | None:
        try:
            return self._transaction([submission])[0]
        except sqlite3.IntegrityError as error:
            streams = ", ".join(dict.fromkeys(append.stream for append in submission))
            conflict = ConflictError(streams, "an event with this id is recorded already")
            conflict.__cause__ = error
            return conflict

    def _settle(
        self, group: Sequence[_Submitted], outcomes: Sequence[ConflictError | None]
    ) -> None:
        with self._changed:
            for item in group:
                self._queued_events -= item.events
                self._queued_size -= item.size
            room, self._room = (self._room, None) if not self._is_full() else (None, self._room)
        if room is not None:
            room.set_result(None)
        for item, refused in zip(group, outcomes, strict=True):
            if refused is None:
                item.ticket.set_result(None)
            else:
                item.ticket.set_exception(refused)

    def _fail(self, work: Sequence[_Submitted] | _Command, error: Exception) -> None:
        """Stop writing: everything in the queue, now and later, becomes `unwritten`."""
        failure = WriteFailedError(f"the event log cannot be written: {error}")
        failure.__cause__ = error
        first = [work] if isinstance(work, _Command) else work
        with self._changed:
            self.failure = failure
            abandoned = [item for item in (*first, *self._queue) if not item.ticket.done()]
            self._queue.clear()
            for item in abandoned:
                if isinstance(item, _Submitted):
                    self._unwritten += item.submission
            self._queued_events = self._queued_size = 0
            room, self._room = self._room, None
        if room is not None:
            room.set_result(None)
        for item in abandoned:
            item.ticket.set_exception(failure)

    def _disconnect(self) -> None:
        try:
            truncate_wal(self._connection)
        except sqlite3.Error:
            # Everything is committed; the next process that opens the file writes the WAL back.
            pass
        finally:
            self._connection.close()
