"""The event log: one SQLite file that any number of processes append to and read."""

from __future__ import annotations

import atexit
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from kindlm_store.canonical import hash_text
from kindlm_store.database import FORKED, open_reader, open_writer, snapshot, translated, use_wal
from kindlm_store.new_event import Append, NewEvent, redacted, require_name
from kindlm_store.projecting import Progress, Projection, Projector, projection_errors
from kindlm_store.reading import SELECT, Head, RecordedEvent
from kindlm_store.schema_check import SchemaGuard
from kindlm_store.store_errors import OpenError, StoreClosedError
from kindlm_store.writer import Ticket, Writer

Answer = TypeVar("Answer")


@dataclass(eq=False)
class EventLog:
    """An open event log, from `EventLog.open` to `close` or the end of a `with` block.

    Any thread may use it.
    """

    path: Path
    _writer: Writer
    _projector: Projector
    _redact: Callable[[str], str] | None
    _keep: Collection[str]
    _process: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        # The writer is a daemon thread: without this, its queue would be lost at exit.
        atexit.register(self.close)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        projections: Sequence[Projection] = (),
        redact: Callable[[str], str] | None = None,
        keep: Collection[str] = (),
        repair: bool = False,
    ) -> Self:
        """Open an event log for reading and writing; create it if the file does not exist.

        Missing and older `projections`, and those behind the events, are folded now. `redact`
        removes secrets from strings, as `Redactor` does. It is a pure function, and finds them also
        in the JSON form of a payload and among other texts. `keep` are names and whole strings of
        payloads that stay, a program's own words; it does not apply to a `Text`. `repair` allows
        changed tables and views of projections, which `rebuild` makes again.

        Raises `ForeignSchemaError` if a trigger, view, index or table differs from what this code
        creates, and `OpenError` if the file is no event log.
        """
        file = Path(path)
        with ExitStack() as unused:
            connection = unused.enter_context(closing(open_writer(file)))
            with translated(file):
                guard = SchemaGuard(file, projections, repair=repair)
                with snapshot(connection, file):
                    guard.check(connection)
                use_wal(connection, file)
                projector = Projector(connection, projections)
                projector.update(file)
            log = cls(file, Writer(connection, projector, guard), projector, redact, keep)
            unused.pop_all()
            return log

    def submit(self, *appends: Append) -> Ticket:
        """Queue events for writing, all or none of them; never wait for the disk.

        The ticket's `result()`, or `await`, returns as soon as the events are durable, or raises
        ConflictError, SealedError or WriteFailedError. Raises `ValueError` if a stream has no name
        or no event, and `StoreClosedError`.
        """
        if not appends:
            raise ValueError("nothing to append")
        return self._writer.put(list(map(self.redacted, appends)))

    def append(self, stream: str, events: Sequence[NewEvent], **more: Any) -> None:
        """Append events to one stream and wait until they are durable.

        `more` are the other fields of `Append`. Raises what the ticket of `submit` raises.
        """
        self.submit(Append(stream, events, **more)).result()

    def flush(self) -> Ticket:
        """Return a ticket that is done when everything submitted is durable or was refused."""
        return self._writer.put(run=lambda _: None)

    def read(
        self, *, stream: str | None = None, types: Collection[str] | None = None
    ) -> Iterator[RecordedEvent]:
        """Yield durable events in order of position, of one stream or of some types if given."""
        where, asked = ("", ()) if stream is None else (" WHERE streams.name = ?", (stream,))
        events = map(
            RecordedEvent._make, self._fetch(f"{SELECT}{where} ORDER BY events.seq", *asked)
        )
        return (event for event in events if types is None or event.type in types)

    def head(self, stream: str) -> Head | None:
        """Return the end of a stream; None if it has no event.

        If the file can no longer be read, this is the end that this log wrote last.
        """
        try:
            rows = self._fetch("SELECT version, head, sealed FROM streams WHERE name = ?", stream)
        except OpenError:
            if (written := self._writer.heads.get(stream)) is None:
                raise
            return written
        return Head(rows[0][0], hash_text(rows[0][1]), bool(rows[0][2])) if rows else None

    def text(self, ref: str) -> str | None:
        """Return the text of a reference; None if it was erased or never stored."""
        rows = self._fetch("SELECT body FROM contents WHERE ref = ?", ref)
        return rows[0][0] if rows else None

    def _fetch(self, sql: str, *parameters: str) -> list[sqlite3.Row]:
        with translated(self.path), closing(self.reader()) as connection:
            return connection.execute(sql, parameters).fetchall()

    def rebuild(self, *, progress: Progress = lambda _done, _last: None) -> None:
        """Fold all projections again from the first event.

        Readers see the old tables until the new ones replace them, and other processes go on
        appending. A crash leaves the old tables. Raises `ProjectionError` if the file has a
        projection in a newer version, and `OpenError` if it cannot be written.
        """
        self.run(lambda _, projector: projector.rebuild(self.path, progress))

    def run(self, work: Callable[[sqlite3.Connection, Projector], Answer]) -> Answer:
        """Call a function with the write connection, after everything submitted before.

        Raises `OpenError` if the file cannot be written.
        """

        def run(connection: sqlite3.Connection) -> Answer:
            with translated(self.path):
                return work(connection, self._projector)

        answer: Answer = self._writer.put(run=run).result()
        return answer

    def projection_errors(self) -> dict[str, str]:
        """Return why each projection's tables are not up to date; {} if all are."""
        with translated(self.path), closing(self.reader()) as connection:
            return projection_errors(connection, self._projector.projections)

    @property
    def failure(self) -> Exception | None:
        """Why the log can no longer be written, such as a full disk; None as long as it can."""
        return self._writer.failure

    def unwritten(self) -> list[Append]:
        """After a failure, return the appends that are not in the file, in order, redacted."""
        return list(self._writer.unwritten)

    def reader(self) -> sqlite3.Connection:
        """Return a new read-only connection; rows are `sqlite3.Row`. The caller closes it.

        Raises `StoreClosedError` in a process that was forked from the one that opened the log. Its
        copy of SQLite's memory has locks that only the parent holds, so another connection may
        overwrite what it reads.
        """
        if os.getpid() != self._process:
            raise StoreClosedError(FORKED)
        return open_reader(self.path)

    def close(self) -> None:
        """Write what was submitted, then close; safe to repeat. Errors are in `failure`."""
        atexit.unregister(self.close)
        if os.getpid() == self._process:
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def redacted(self, append: Append) -> Append:
        """Check an append, and return it without secrets."""
        require_name("stream", append.stream)
        if not append.events:
            raise ValueError(f"no event to append to {append.stream}")
        if self._redact is None:
            return append
        return replace(append, events=redacted(append.events, self._redact, self._keep))
