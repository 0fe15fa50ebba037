"""The event log: one SQLite file, appended to and read by any number of processes."""

from __future__ import annotations

import atexit
import os
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kindlm_store.database import (
    connect_reader,
    connect_writer,
    make_ready,
    translated,
)
from kindlm_store.events import Append
from kindlm_store.new_event import redacted, require_name
from kindlm_store.projecting import Projector, projection_errors
from kindlm_store.reading import Answer, LogReader
from kindlm_store.schema_check import SchemaGuard
from kindlm_store.writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from kindlm_store.database import Synchronous
    from kindlm_store.new_event import NewEvent
    from kindlm_store.projecting import Progress, Projection
    from kindlm_store.writer import Ticket


class EventLog(LogReader):
    """An open event log; made by `EventLog.open`, closed by `close` or at the end of a `with`."""

    def __init__(
        self,
        path: Path,
        reader: sqlite3.Connection,
        connection: sqlite3.Connection,
        projector: Projector,
        redact: Callable[[str], str] | None,
        guard: SchemaGuard,
    ) -> None:
        super().__init__(path, reader)
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
            repair: Whether to open it although tables or views of projections were changed: for
                `rebuild`, which makes them anew.

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

    def flush(self) -> None:
        """Wait until everything submitted so far is durable, or was refused.

        Raises:
            WriteFailedError: The disk did not take it.
        """
        self._writer.call(_nothing).result()

    async def aflush(self) -> None:
        """`flush`, for a coroutine."""
        await self._writer.call(_nothing)

    def text(self, ref: str) -> str | None:
        """The text a reference stands for; None if it was erased or never stored."""
        return self.texts([ref]).get(ref)

    def rebuild(self, *, progress: Progress | None = None) -> None:
        """Fold all projections anew from the first event.

        Readers see the old tables until the new ones take their place, other processes go on
        appending, and a crash at any moment leaves the old ones.

        Args:
            progress: Called with the number of events passed and the number there are.

        Raises:
            ProjectionError: The file has a projection in a newer version.
            OpenError: The file cannot be written; the old tables are still there.
        """
        self.run(lambda _, projector: projector.rebuild(self.path, progress))

    def run(self, work: Callable[[sqlite3.Connection, Projector], Answer]) -> Answer:
        """Let something else work with the write connection, after all that was submitted.

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
        self.refuse_in_child()
        return connect_reader(self.path)

    def close(self) -> None:
        """Write what was submitted, then close. Idempotent; see `failure` for what went wrong."""
        atexit.unregister(self.close)
        # First the reader: the last connection to close removes the WAL, if it can write.
        super().close()
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        import asyncio

        await asyncio.to_thread(self.close)

    def redacted(self, append: Append) -> Append:
        """Check an append, and return it without secrets."""
        require_name("stream", append.stream)
        if not append.events:
            message = f"no event to append to {append.stream}"
            raise ValueError(message)
        if self._redact is None:
            return append
        return replace(append, events=redacted(append.events, self._redact))


def open_reader(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """A connection to an event log that only reads, without a writer thread; sees a live WAL.

    Raises:
        OpenError: The file is not there, or cannot be opened as an event log.
    """
    return connect_reader(Path(path))


def _nothing(connection: sqlite3.Connection) -> None:
    del connection
