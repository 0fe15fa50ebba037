"""Reading events, heads and texts."""

from __future__ import annotations

import json
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from kindlm_store.canonical import hash_text
from kindlm_store.database import FORKED, forks, translated
from kindlm_store.events import Head, RecordedEvent
from kindlm_store.store_errors import StoreClosedError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

Answer = TypeVar("Answer")

_PAGE = 1_000
"""Events fetched at once: no read transaction stays open while a caller thinks."""

_SELECT = """
    SELECT events.seq, events.id, streams.name, events.version, event_types.name, events.schema,
        events.at, events.subject, events.data, events.hash
    FROM events
    JOIN streams ON streams.id = events.stream
    JOIN event_types ON event_types.id = events.type
"""
_OF_TYPES = """
    WHERE events.type IN (
        SELECT id FROM event_types WHERE CAST(name AS TEXT) IN (SELECT value FROM json_each(?)))
    ORDER BY events.seq
"""


def last_position(connection: sqlite3.Connection) -> int:
    """Position of the newest event; 0 if there is none."""
    return int(connection.execute("SELECT max(seq) FROM events").fetchone()[0] or 0)


def events_of_types(
    connection: sqlite3.Connection, types: Iterable[str]
) -> Iterator[RecordedEvent]:
    """All events of some types, by position."""
    # Of a type that is a blob, too: an index that does not have it must not hide events.
    rows = connection.execute(f"{_SELECT}{_OF_TYPES}", (json.dumps([*types]),))
    return map(RecordedEvent._make, rows)


def events_after(
    connection: sqlite3.Connection, stream: str, after: int, limit: int
) -> list[RecordedEvent]:
    """The next events of a stream behind a version."""
    sql = f"{_SELECT} WHERE streams.name = ? AND events.version > ? ORDER BY events.version LIMIT ?"
    return list(map(RecordedEvent._make, connection.execute(sql, (stream, after, limit))))


def stored_texts(connection: sqlite3.Connection, refs: Iterable[str]) -> sqlite3.Cursor:
    """Reference, salt, digest and body of texts, those that have a row, by reference."""
    return connection.execute(
        "SELECT ref, salt, digest, body FROM contents"
        " WHERE ref IN (SELECT value FROM json_each(?)) ORDER BY ref",
        (json.dumps([*refs]),),
    )


def hash_at(connection: sqlite3.Connection, stream: str, version: int) -> bytes | None:
    """The tagged hash of an event; None if there is no such event."""
    row = connection.execute(
        "SELECT hash FROM events WHERE version = ?"
        " AND stream = (SELECT id FROM streams WHERE name = ?)",
        (version, stream),
    ).fetchone()
    return row[0] if row else None


class LogReader:
    """What `EventLog` reads: through one connection, from any thread."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._forks = forks.count
        self._connection = connection
        self._lock = Lock()
        self._closed = False

    def read(
        self, *, stream: str | None = None, types: Iterable[str] | None = None
    ) -> Iterator[RecordedEvent]:
        """Durable events in order of position, of one stream or of some types if asked for."""
        # Positions and versions grow together in a stream, which has an index by version.
        pages = (
            self._pages("seq") if stream is None else self._pages("version", "streams.name", stream)
        )
        wanted = None if types is None else frozenset(types)
        return (event for event in pages if wanted is None or event.type in wanted)

    def _pages(self, order: str, column: str = "1", value: object = 1) -> Iterator[RecordedEvent]:
        sql = (
            f"{_SELECT} WHERE {column} = ? AND events.{order} > ?"
            f" ORDER BY events.{order} LIMIT {_PAGE}"
        )
        after = 0
        while True:
            page = list(map(RecordedEvent._make, self._fetch(sql, (value, after))))
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1].position if order == "seq" else page[-1].version

    def head(self, stream: str) -> Head | None:
        """Where a stream ends; None if it has no event."""
        rows = self._fetch("SELECT version, head, sealed FROM streams WHERE name = ?", (stream,))
        return Head(rows[0][0], hash_text(rows[0][1]), bool(rows[0][2])) if rows else None

    def texts(self, refs: Iterable[str]) -> dict[str, str]:
        """Reference → text; those that were erased or never stored are absent."""
        rows = self.ask(lambda connection: stored_texts(connection, refs).fetchall())
        return {row["ref"]: row["body"] for row in rows if row["body"] is not None}

    def ask(self, query: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """What a query finds through the connection that the log itself reads with.

        No other thread uses it meanwhile; rows are `sqlite3.Row`.

        Raises:
            StoreClosedError: It is closed.
            OpenError: The file is damaged, or cannot be read any more.
        """
        # Before the lock, which another thread may have held when the process was forked.
        self.refuse_in_child()
        with self._lock:
            if self._closed:
                message = "the event log is closed"
                raise StoreClosedError(message)
            with translated(self.path):
                return query(self._connection)

    def refuse_in_child(self) -> None:
        """Raise StoreClosedError if the process was forked since.

        In the copy of its memory SQLite has locks that only the parent holds: what another
        connection reads there may be overwritten meanwhile.
        """
        if forks.count != self._forks:
            raise StoreClosedError(FORKED)

    def close(self) -> None:
        """Close the connection."""
        if forks.count != self._forks:
            return
        with self._lock:
            self._closed = True
            self._connection.close()

    def _fetch(self, sql: str, parameters: tuple[object, ...]) -> list[Any]:
        return self.ask(lambda connection: connection.execute(sql, parameters).fetchall())
