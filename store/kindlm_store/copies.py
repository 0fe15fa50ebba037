"""Streams as they are stored: what one log hands to another, byte by byte.

Nothing is decoded on the way, so that every hash still holds where it arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from kindlm_store.database import translated
from kindlm_store.erasing import EMPTY_ROWS, erased_by_log
from kindlm_store.locks import is_held

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from kindlm_store.erasing import Erasures

_PAGE = 1_000


class StoredStream(NamedTuple):
    """The record of a stream.

    Attributes:
        name: Name of the stream.
        version: Number of its events.
        head: Tagged hash of the last one.
        sealed: Whether nothing can be appended any more.
    """

    name: str
    version: int
    head: bytes
    sealed: bool


class StoredEvent(NamedTuple):
    """An event as its row holds it: the id in 16 bytes, data as text, the hash with its tag."""

    version: int
    id: bytes
    type: str
    schema: int
    at: str
    subject: str | None
    data: str
    hash: bytes


class StoredText(NamedTuple):
    """A text with the salt of its reference; the body is None where it was erased or withheld."""

    ref: str
    salt: bytes | None
    body: str | None


class Source(Protocol):
    """Where streams are taken from."""

    def streams(self) -> Iterable[StoredStream]:
        """All streams that it has."""
        ...

    def is_going_on(self, stream: str) -> bool:
        """Whether somebody is writing the stream now."""
        ...

    def hash_at(self, stream: str, version: int) -> bytes | None:
        """The tagged hash of an event; None if there is no such event."""
        ...

    def events(self, stream: str, after: int) -> Iterator[StoredEvent]:
        """The events of a stream behind a version, in order."""
        ...

    def texts(self, refs: Sequence[str]) -> Iterable[StoredText]:
        """The texts of some references, also those without a body; absent is what it lost."""
        ...

    def erased(self, erasures: Erasures, streams: Collection[str]) -> Collection[str]:
        """The references of the texts that were erased there, as events of some streams say."""
        ...


class LogSource:
    """A log that is read from: one snapshot of it, from `__enter__` to `__exit__`.

    Args:
        connection: A connection that only reads, as `open_reader` gives it.
        path: The file.
        salvaged: Whether it is what could be read of a damaged log: texts that it does not have
            are withheld then.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: Path, *, salvaged: bool = False
    ) -> None:
        self._connection = connection
        self._path = path
        self._salvaged = salvaged

    def __enter__(self) -> Self:
        self._connection.execute("BEGIN")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def streams(self) -> Iterator[StoredStream]:
        """All streams, oldest first."""
        rows = self._rows("SELECT name, version, head, sealed FROM streams ORDER BY id")
        for name, version, head, sealed in rows:
            yield StoredStream(name, version, head, bool(sealed))

    def is_going_on(self, stream: str) -> bool:
        """Whether a process holds the lock of the stream."""
        return is_held(self._path, stream)

    def hash_at(self, stream: str, version: int) -> bytes | None:
        """The tagged hash of an event; None if there is no such event."""
        with translated(self._path):
            return hash_at(self._connection, stream, version)

    def events(self, stream: str, after: int) -> Iterator[StoredEvent]:
        """The events of a stream behind a version, in order."""
        while True:
            with translated(self._path):
                events = events_after(self._connection, stream, after, _PAGE)
            yield from events
            if len(events) < _PAGE:
                return
            after = events[-1].version

    def texts(self, refs: Sequence[str]) -> Iterator[StoredText]:
        """The texts of some references, also those without a body."""
        for start in range(0, len(refs), _PAGE // 2):
            asked = refs[start : start + _PAGE // 2]
            marks = ",".join("?" * len(asked))
            query = f"SELECT ref, salt, body FROM contents WHERE ref IN ({marks})"  # noqa: S608
            found = [StoredText(*row) for row in self._rows(query, asked)]
            yield from found
            if self._salvaged:
                lost = set(asked).difference(text.ref for text in found)
                yield from (StoredText(ref, None, None) for ref in sorted(lost))

    def erased(self, erasures: Erasures, streams: Collection[str]) -> Collection[str]:
        """The references of the texts that were erased, as events of some streams say."""
        empty = {row[0] for row in self._rows(EMPTY_ROWS)}
        with translated(self._path):
            return erased_by_log(self._connection, erasures, empty, streams)

    def _rows(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        with translated(self._path):
            return self._connection.execute(query, parameters).fetchall()


def events_after(
    connection: sqlite3.Connection, stream: str, after: int, limit: int
) -> list[StoredEvent]:
    """The next events of a stream behind a version, through any connection to a log."""
    rows = connection.execute(
        "SELECT events.version, events.id, event_types.name, schema, at, subject, data, hash"
        " FROM events JOIN event_types ON event_types.id = events.type"
        " WHERE stream = (SELECT id FROM streams WHERE name = ?) AND version > ?"
        " ORDER BY version LIMIT ?",
        (stream, after, limit),
    )
    return [StoredEvent(*row) for row in rows]


def hash_at(connection: sqlite3.Connection, stream: str, version: int) -> bytes | None:
    """The tagged hash of an event, through any connection to a log."""
    row = connection.execute(
        "SELECT hash FROM events WHERE version = ?"
        " AND stream = (SELECT id FROM streams WHERE name = ?)",
        (version, stream),
    ).fetchone()
    return row[0] if row else None
