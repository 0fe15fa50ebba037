"""Reads recorded events and their texts, through any connection to a log."""

from __future__ import annotations

from json import dumps, loads
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from kindlm_store.canonical import event_hash, hash_text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator


class Head(NamedTuple):
    """Where a stream ends.

    Attributes:
        version: Number of events in the stream.
        hash: Hash of the last one, `sha256:<hex>`.
        sealed: Whether nothing can be appended any more.
    """

    version: int
    hash: str
    sealed: bool


class RecordedEvent(NamedTuple):
    """An event as it was recorded: its row, and what that says.

    Attributes:
        position: Order of arrival in this file; differs between files.
        raw_id: Identity across files, 16 bytes.
        stream: Name of the stream.
        version: Position in the stream, from 1.
        type: Event type.
        schema: Version of the form that `data` has.
        at: UTC, ISO 8601, microseconds.
        subject: What inside the stream the event is about.
        json: The payload in canonical JSON; an authored text is `{"$ref": "<ref>"}`.
        raw_hash: Tagged hash over this event as stored and all before it.
    """

    position: int
    raw_id: bytes
    stream: str
    version: int
    type: str
    schema: int
    at: str
    subject: str | None
    json: str
    raw_hash: bytes

    @property
    def id(self) -> UUID:
        """Its identity across files."""
        return UUID(bytes=self.raw_id)

    @property
    def data(self) -> dict[str, Any]:
        """The payload."""
        data: dict[str, Any] = loads(self.json)
        return data

    @property
    def hash(self) -> str:
        """The hash, `sha256:<hex>`."""
        return hash_text(self.raw_hash)

    def hash_after(self, head: bytes, *, seal: bool) -> bytes:
        """The hash that it must have behind the event of another hash.

        Args:
            head: Tagged hash of the event before it in its stream, or `GENESIS`.
            seal: Whether it seals its stream.

        Raises:
            UnicodeEncodeError: It is not UTF-8, data apart.
        """
        return event_hash(
            head, self.json.encode(errors="surrogateescape"), id=self.raw_id, stream=self.stream,
            version=self.version, type=self.type, schema=self.schema, at=self.at,
            subject=self.subject, seal=seal,
        )  # fmt: skip


SELECT = """
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
    rows = connection.execute(f"{SELECT}{_OF_TYPES}", (dumps([*types]),))
    return map(RecordedEvent._make, rows)


def events_after(
    connection: sqlite3.Connection, stream: str, after: int, limit: int
) -> list[RecordedEvent]:
    """The next events of a stream behind a version."""
    sql = f"{SELECT} WHERE streams.name = ? AND events.version > ? ORDER BY events.version LIMIT ?"
    return list(map(RecordedEvent._make, connection.execute(sql, (stream, after, limit))))


def stored_texts(connection: sqlite3.Connection, refs: Iterable[str]) -> sqlite3.Cursor:
    """Reference, salt, digest and body of texts, those that have a row, by reference."""
    return connection.execute(
        "SELECT ref, salt, digest, body FROM contents"
        " WHERE ref IN (SELECT value FROM json_each(?)) ORDER BY ref",
        (dumps([*refs]),),
    )


def hash_at(connection: sqlite3.Connection, stream: str, version: int) -> bytes | None:
    """The tagged hash of an event; None if there is no such event."""
    row = connection.execute(
        "SELECT hash FROM events WHERE version = ?"
        " AND stream = (SELECT id FROM streams WHERE name = ?)",
        (version, stream),
    ).fetchone()
    return row[0] if row else None
