"""The event log: one SQLite file, appended to and read by any number of processes."""

from __future__ import annotations

import atexit
import os
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kindlm_store.append import Appender
from kindlm_store.database import (
    connect_reader,
    connect_writer,
    immediate,
    make_ready,
    snapshot,
    translated,
)
from kindlm_store.events import Append
from kindlm_store.new_event import redacted, require_name
from kindlm_store.projecting import Projector, projection_errors
from kindlm_store.reading import LogReader
from kindlm_store.schema_check import SchemaGuard
from kindlm_store.writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kindlm_store.database import Synchronous
    from kindlm_store.erasing import Erasable, Erased, Erasures
    from kindlm_store.merging import Accept, Begin, Taken
    from kindlm_store.new_event import NewEvent
    from kindlm_store.projecting import Progress, Projection
    from kindlm_store.verification import Claims, Verification
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
        return self._writer.submit(list(map(self._redacted, appends)))

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

    def verify(
        self,
        stream: str | None = None,
        *,
        heads: Mapping[str, str] | None = None,
        claims: Claims | None = None,
        erasures: Erasures | None = None,
    ) -> Verification:
        """Check stored events and texts against their hashes.

        Args:
            stream: Check this stream and the texts it refers to; None checks the whole file.
            heads: Stream → hash, `sha256:<hex>`, that was noted elsewhere as its head: one of its
                events must have it.
            claims: Event type → function that gives such heads as an event of this type noted
                them (with `HeadOf`).
            erasures: Event type → function that says what an event of this type erased: a text
                that is gone must be among it. None: any text may be gone.
        """
        from kindlm_store.verification import verify_file

        self.refuse_in_child()
        return verify_file(self.path, stream, heads=heads, claims=claims, erasures=erasures)

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

        def run(connection: sqlite3.Connection) -> None:
            del connection
            with translated(self.path):
                self._projector.rebuild(self.path, progress)

        self._writer.call(run).result()

    def take(
        self,
        source: sqlite3.Connection,
        path: Path,
        *,
        accept: Accept,
        claims: Claims | None = None,
        erasures: Erasures | None = None,
        begins: Mapping[str, Begin] | None = None,
        together: bool = False,
    ) -> Taken:
        """Append what another log has and this one has not, byte by byte, and fold it.

        Args:
            source: Another log, to read one snapshot of; a `scratch_log` for what is no file.
            path: Its file.
            accept: Looks at each event before it is taken; raises ValueError to refuse its stream.
            claims: As for `verify`: heads that are noted must be here.
            erasures: Event type → function that says what an event of this type erased: that is
                erased here, too, and nothing else is.
            begins: Stream → behind which event it begins in the source, if not with its first.
            together: All streams or none, instead of each by itself.

        Raises:
            RefusedError: A stream cannot be taken, and `together` was asked for.
            OpenError: The file cannot be written, or the other one cannot be read.
        """
        from kindlm_store.erasing import give_back
        from kindlm_store.merging import Merge

        def run(connection: sqlite3.Connection) -> Taken:
            with translated(self.path), snapshot(source, path):
                merge = Merge(
                    connection, self.path, self._projector, source, path,
                    accept=accept, claims=claims or {}, erasures=erasures or {},
                    begins=begins or {},
                )  # fmt: skip
                taken = merge.together() if together else merge.one_by_one()
                if taken.erased:
                    give_back(connection)
                return taken

        taken: Taken = self._writer.call(run).result()
        return taken

    def erasable(
        self,
        streams: Collection[str] | None = None,
        matches: Callable[[str], bool] | None = None,
        forgotten: Mapping[str, str] | None = None,
        evidence: str | None = None,
    ) -> Erasable:
        """The texts that `erase` would erase.

        Args:
            streams: Only what their events refer to, and no event of another stream does.
            matches: Only texts for which it is true.
            forgotten: Stream → time (UTC, as events have it): other streams that keep no text for
                what their events up to then refer to, since it was to be erased before.
            evidence: Member of events whose text goes with any other text of the event that
                matches, as it says the same in its own form.
        """
        from kindlm_store.erasing import find_erasable

        with translated(self.path), closing(self.reader()) as reader:
            return find_erasable(reader, streams, matches, forgotten or {}, evidence)

    def erase(self, found: Erasable, record: Callable[[list[str]], Append]) -> Erased:
        """Erase texts for good, record that in the same transaction, and give back the space.

        Args:
            found: What `erasable` found.
            record: Gives what to append, of the references of the texts that were erased: it has
                to name them, so that they are erased wherever it is taken.

        Raises:
            ConflictError: What was to be recorded does not fit its stream; nothing is erased.
            OpenError: The file cannot be written.
        """
        from kindlm_store.erasing import Erased, erase, give_back

        def run(connection: sqlite3.Connection) -> Erased:
            with translated(self.path):
                with immediate(connection):
                    refs = erase(connection, found)
                    (refused,) = Appender(connection).write([[self._redacted(record(refs))]])
                    if refused is not None:
                        raise refused
                    self._projector.fold()
                return Erased(len(refs), give_back(connection))

        erased: Erased = self._writer.call(run).result()
        return erased

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

    def _redacted(self, append: Append) -> Append:
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
