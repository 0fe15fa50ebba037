"""The writer thread: it owns the write connection and commits submissions in groups.

Callers put submissions into a queue and never wait for the disk. The thread writes everything since
its last commit in one transaction with one fsync, folds the projections in the same transaction,
and then settles the tickets. If the file cannot be written, `unwritten` returns all submissions.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Condition, Lock, Thread
from typing import Any, NamedTuple

from kindlm_store.append import Appender, Submission
from kindlm_store.database import FORKED, immediate, roll_back, truncate_wal
from kindlm_store.new_event import Append
from kindlm_store.projecting import Projector
from kindlm_store.reading import Head
from kindlm_store.schema_check import SchemaGuard
from kindlm_store.store_errors import OpenError, StoreClosedError, WriteFailedError


class Ticket(Future[Any]):
    """The promise that submitted events are durable: wait for it with `result` or `await`."""

    def cancel(self) -> bool:
        """Return False: submitted events are written even if no one waits."""
        return False

    def __await__(self) -> Generator[object, None, Any]:
        # It takes long to load, and programs that only read do not need it.
        import asyncio

        return asyncio.wrap_future(self).__await__()


_GROUP_EVENTS = 2_000
"""Events in one transaction: enough to make fsync cheap, few enough for others to get a turn."""


_LINGER_S = 0.05
"""Seconds from one commit to the next while events keep coming, since commits are costly."""

_QUIET_S = 0.002
"""The thread commits after this time (seconds) without a submission."""


class _Work(NamedTuple):
    """An entry of the queue: a submission, or a command to `run` on the write connection."""

    ticket: Ticket
    submission: Submission
    run: Callable[[sqlite3.Connection], Any] | None

    @property
    def events(self) -> int:
        """The number of its events."""
        return sum(len(append.events) for append in self.submission)


class Writer:
    """The queue and the thread of one log.

    `failure` is why the file could not be written; None as long as it can. `unwritten` has the
    appends that were submitted and not written since, in order. `heads` has the durable ends of the
    streams that were written to.
    """

    def __init__(
        self, connection: sqlite3.Connection, projector: Projector, guard: SchemaGuard
    ) -> None:
        self._connection = connection
        self._process = os.getpid()
        self._guard = guard
        self._file = guard.path.absolute()
        self._appender = Appender(connection)
        self._projector = projector
        self._changed = Condition(Lock())
        self._queue: deque[_Work] = deque()
        self._idle = False
        self._committed_at = 0.0
        self._closing = False
        self.failure: WriteFailedError | None = None
        self.unwritten: list[Append] = []
        self.heads: dict[str, Head] = {}
        self._thread = Thread(target=self._serve, name="kindlm-store-writer", daemon=True)
        self._thread.start()

    def put(
        self, submission: Submission = (), run: Callable[[sqlite3.Connection], Any] | None = None
    ) -> Ticket:
        """Queue a submission, or a command to `run`; entries are processed in order.

        Raises `StoreClosedError` if the log is closed, or was opened before a fork.
        """
        work = _Work(Ticket(), submission, run)
        # Another thread may have held the lock when the process was forked.
        if os.getpid() != self._process:
            raise StoreClosedError(FORKED)
        with self._changed:
            if self._closing:
                raise StoreClosedError("the event log is closed")
            if self.failure is None:
                self._queue.append(work)
                # A command also ends `_linger`.
                if self._idle or work.run is not None:
                    self._changed.notify()
                return work.ticket
            self.unwritten += work.submission
        work.ticket.set_exception(self.failure)
        return work.ticket

    def close(self) -> None:
        """Write the queue, end the thread and close the connection; safe to repeat."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _serve(self) -> None:
        try:
            while group := self._take():
                try:
                    if group[0].run is None:
                        self._commit(group)
                    else:
                        self._run(group[0].run, group[0].ticket)
                # No caller may wait forever, whatever the error.
                except Exception as error:  # noqa: BLE001
                    self._fail(group, error)
        finally:
            # Otherwise, the next process that opens the file writes the WAL back.
            with suppress(sqlite3.Error):
                truncate_wal(self._connection)
            self._connection.close()

    def _take(self) -> list[_Work]:
        """Return the next command, or the submissions before it; nothing at the end."""
        with self._changed:
            while not self._queue:
                if self._closing:
                    return []
                self._idle = True
                self._changed.wait()
                self._idle = False
            self._linger()
            group = [self._queue.popleft()]
            events = group[0].events
            while (
                group[0].run is None
                and self._queue
                and self._queue[0].run is None
                and events < _GROUP_EVENTS
            ):
                group.append(self._queue.popleft())
                events += group[-1].events
            return group

    def _linger(self) -> None:
        """Wait before the next commit while submissions keep coming."""
        length = 0
        while (
            length < len(self._queue)
            and self._queue[-1].run is None
            and not self._closing
            and (left := self._committed_at + _LINGER_S - time.monotonic()) > 0
        ):
            length = len(self._queue)
            self._changed.wait(min(left, _QUIET_S))
        self._committed_at = time.monotonic()

    def _run(self, run: Callable[[sqlite3.Connection], Any], ticket: Ticket) -> None:
        try:
            value = run(self._connection)
        # The caller gets the error of a command; the log goes on writing.
        except Exception as error:  # noqa: BLE001
            roll_back(self._connection)
            ticket.set_exception(error)
        else:
            ticket.set_result(value)
        finally:
            self._appender.forget()

    def _commit(self, group: Sequence[_Work]) -> None:
        """Write submissions in one transaction, and settle their tickets."""
        # What is written into a deleted file is lost.
        if not self._file.exists():
            raise OpenError(self._file, "was moved or deleted")
        with immediate(self._connection):
            # Another program may have created a trigger.
            self._guard.check(self._connection)
            outcomes = self._appender.write([work.submission for work in group])
            self._projector.fold()
        self.heads |= self._appender.ends
        for work, refused in zip(group, outcomes, strict=True):
            if refused is None:
                work.ticket.set_result(None)
            else:
                work.ticket.set_exception(refused)

    def _fail(self, group: Sequence[_Work], error: Exception) -> None:
        """Stop writing: everything in the queue, now and later, becomes `unwritten`."""
        failure = WriteFailedError(f"the event log cannot be written: {error}")
        failure.__cause__ = error
        with self._changed:
            self.failure = failure
            abandoned = [work for work in (*group, *self._queue) if not work.ticket.done()]
            self._queue.clear()
            for work in abandoned:
                self.unwritten += work.submission
        for work in abandoned:
            work.ticket.set_exception(failure)
