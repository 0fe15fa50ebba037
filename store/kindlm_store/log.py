"""The event log: one SQLite file, appended to and read by any number of processes."""

from __future__ import annotations

import atexit
import os
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kindlm_store.canonical import hash_text
from kindlm_store.database import (
    FORKED,
    connect_writer,
    forks,
    immediate,
    make_ready,
    open_reader,
    snapshot,
    translated,
)
from kindlm_store.new_event import Append, redacted, require_name
from kindlm_store.projecting import Projector, projection_errors
from kindlm_store.reading import SELECT, Head, RecordedEvent
from kindlm_store.schema_check import SchemaGuard, make_views
from kindlm_store.store_errors import OpenError, StoreClosedError
from kindlm_store.writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kindlm_store.database import Synchronous
    from kindlm_store.new_event import NewEvent
    from kindlm_store.projecting import Progress, Projection
    from kindlm_store.writer import Ticket


Answer = TypeVar("Answer")


class EventLog:
    """An open event log; made by `EventLog.open`, closed by `close` or at the end of a `with`.

    It reads through one connection, from any thread.
    """

    def __init__(
        self,
        path: Path,
        reader: sqlite3.Connection,
        connection: sqlite3.Connection,
        projector: Projector,
        redact: Callable[[str], str] | None,
        guard: SchemaGuard,
    ) -> None:
        self.path = path
        self._reader = reader
        self._lock = Lock()
        self._closed = False
        self._forks = forks.count
        self._projector = projector
        self._redact = redact
        self._writer = Writer(connection, projector, guard)
        # The writer is a daemon thread: without this, what is queued would die with the process.
        atexit.register(self.close)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        projections: Sequence[Projection] = (),
        redact: Callable[[str], str] | None = None,
        synchronous: Synchronous = "FULL",
        repair: bool = False,
    ) -> Self:
        """Open an event log for reading and writing; create it if there is none.

        Args:
            path: The file; folders that are missing are created.
            projections: Read models to keep. Those that the file has not, has in an older
                version, or that are behind its events are folded now.
            redact: Takes secrets out of every string before it is stored, as `Redactor` does:
                a pure function that also finds them in the JSON form of a payload and among
                other texts.
            synchronous: How far SQLite waits for the disk; FULL survives a power cut.
            repair: Whether to open it although tables or views of projections were changed, or
                views are missing: for `rebuild`, which makes them anew.

        Raises:
            ForeignSchemaError: It has triggers, views, indexes or tables that are not as this code
                makes them.
            OpenError: The file cannot be opened as an event log.
        """
        file = Path(path)
        with ExitStack() as unused:
            reader = unused.enter_context(closing(make_ready(file, synchronous)))
            connection = unused.enter_context(closing(connect_writer(file, synchronous)))
            with translated(file):
                guard = SchemaGuard(file, projections, repair=repair)
                with snapshot(connection, file):
                    guard.check(connection)
                projector = Projector(connection, projections)
                projector.fold_outdated(file)
                projector.catch_up()
            log = cls(file, reader, connection, projector, redact, guard)
            unused.pop_all()
            return log

    def submit(self, *appends: Append) -> Ticket:
        """Hand over events to be written; never waits for the disk.

        All appends of one call are one transaction: all are recorded, or none.

        Returns:
            A ticket whose `result()`, or `await`, returns as soon as they are durable, or raises
            ConflictError, SealedError or WriteFailedError.

        Raises:
            ValueError: A stream has no name, or there is no event for it.
            StoreClosedError: The log is closed.
        """
        if not appends:
            message = "nothing to append"
            raise ValueError(message)
        return self._writer.submit(list(map(self.redacted, appends)))

    def append(
        self,
        stream: str,
        events: Sequence[NewEvent],
        *,
        expected_version: int | None = None,
        seal: bool = False,
    ) -> None:
        """Append events to one stream and wait until they are durable.

        Raises:
            ConflictError: The stream is not at the expected version, or an event id is recorded.
            SealedError: The stream is sealed.
            WriteFailedError: The disk did not take it.
        """
        self.submit(Append(stream, events, expected_version, seal)).result()

    async def ready(self) -> None:
        """Return when the queue has room: await it before submitting much (backpressure)."""
        await self._writer.ready()

    def flush(self) -> Ticket:
        """A ticket for everything submitted so far: it is durable, or was refused."""
        return self._writer.call(lambda _: None)

    def read(
        self, *, stream: str | None = None, types: Iterable[str] | None = None
    ) -> Iterator[RecordedEvent]:
        """Durable events in order of position, of one stream or of some types if asked for."""
        where, names = ("", ()) if stream is None else ("WHERE streams.name = ?", (stream,))
        rows = self._fetch(f"{SELECT} {where} ORDER BY events.seq", *names)
        wanted = None if types is None else frozenset(types)
        events = map(RecordedEvent._make, rows)
        return (event for event in events if wanted is None or event.type in wanted)

    def head(self, stream: str) -> Head | None:
        """The end of a stream; None if it has no event.

        If the file cannot be read any more, it is the end that this log has written itself.
        """
        try:
            rows = self._fetch("SELECT version, head, sealed FROM streams WHERE name = ?", stream)
        except OpenError:
            if (written := self._writer.heads.get(stream)) is None:
                raise
            return written
        return Head(rows[0][0], hash_text(rows[0][1]), bool(rows[0][2])) if rows else None

    def text(self, ref: str) -> str | None:
        """The text of a reference; None if it was erased or never stored."""
        rows = self._fetch("SELECT body FROM contents WHERE ref = ?", ref)
        return rows[0][0] if rows else None

    def ask(self, query: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """The rows of a query through the log's own read connection.

        No other thread uses it meanwhile; rows are `sqlite3.Row`.

        Raises:
            StoreClosedError: It is closed.
            OpenError: The file is damaged, or cannot be read any more.
        """
        # Before the lock, which another thread may have held when the process was forked.
        self._refuse_in_child()
        with self._lock:
            if self._closed:
                message = "the event log is closed"
                raise StoreClosedError(message)
            with translated(self.path):
                return query(self._reader)

    def _fetch(self, sql: str, *parameters: str) -> list[Any]:
        return self.ask(lambda connection: connection.execute(sql, parameters).fetchall())

    def _refuse_in_child(self) -> None:
        """Raise StoreClosedError if the process was forked since.

        The child's copy of SQLite's memory has locks that only the parent holds: another connection
        may overwrite what it reads meanwhile.
        """
        if forks.count != self._forks:
            raise StoreClosedError(FORKED)

    def rebuild(self, *, progress: Progress | None = None) -> None:
        """Fold all projections anew from the first event, and make views that are missing.

        Readers see the old tables until the new ones take their place, other processes go on
        appending, and a crash at any moment leaves the old ones.

        Args:
            progress: Called with the number of events passed and the number there are.

        Raises:
            ProjectionError: The file has a projection in a newer version.
            OpenError: The file cannot be written; the old tables are still there.
        """

        def rebuild(connection: sqlite3.Connection, projector: Projector) -> None:
            with immediate(connection):
                make_views(connection)
            projector.rebuild(self.path, progress)

        self.run(rebuild)

    def run(self, work: Callable[[sqlite3.Connection, Projector], Answer]) -> Answer:
        """Call a function with the write connection, after all that was submitted.

        Raises:
            OpenError: The file cannot be written.
        """

        def run(connection: sqlite3.Connection) -> Answer:
            with translated(self.path):
                return work(connection, self._projector)

        answer: Answer = self._writer.call(run).result()
        return answer

    def projection_errors(self) -> dict[str, str]:
        """Projections whose tables are not up to date, with the reason."""
        projections = self._projector.projections
        return self.ask(lambda reader: projection_errors(reader, projections))

    @property
    def failure(self) -> Exception | None:
        """Why the log can no longer be written (a full disk, say); None as long as it can."""
        return self._writer.failure

    def unwritten(self) -> list[Append]:
        """After a failure: all that was submitted and is not in the file, in order, redacted."""
        return self._writer.unwritten

    def reader(self) -> sqlite3.Connection:
        """A new connection that only reads; rows are `sqlite3.Row`. Its user closes it."""
        self._refuse_in_child()
        return open_reader(self.path)

    def close(self) -> None:
        """Write what was submitted, then close. Idempotent; see `failure` for what went wrong."""
        atexit.unregister(self.close)
        if forks.count != self._forks:
            return
        # First the reader: the last connection to close removes the WAL, if it can write.
        with self._lock:
            self._closed = True
            self._reader.close()
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def redacted(self, append: Append) -> Append:
        """Check an append, and return it without secrets."""
        require_name("stream", append.stream)
        if not append.events:
            message = f"no event to append to {append.stream}"
            raise ValueError(message)
        if self._redact is None:
            return append
        return replace(append, events=redacted(append.events, self._redact))
