"""Reads recorded events and their texts, through any connection to a log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from json import dumps, loads
from typing import Any, NamedTuple
from uuid import UUID

from kindlm_store.canonical import hash_text


class Head(NamedTuple):
    """The end of a stream: number of events, last hash (`sha256:<hex>`), whether it is sealed."""

    version: int
    hash: str
    sealed: bool


class RecordedEvent(NamedTuple):
    """An event as recorded; the store's README describes its fields.

    `position` is the order of arrival in this file, `raw_id` the 16 bytes of its id. `json` is the
    payload as stored, and `raw_hash` the tagged hash over this event and all before it.
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
        """The identity of the event in all files."""
        return UUID(bytes=self.raw_id)

    @property
    def is_in_form(self) -> bool:
        """Whether its values have the types that are stored; someone may have changed the file."""
        return tuple(map(type, self)) in _FORMS and len(self.raw_id) == _ID_BYTES

    @property
    def data(self) -> dict[str, Any]:
        """The payload, decoded."""
        data: dict[str, Any] = loads(self.json)
        return data

    @property
    def hash(self) -> str:
        """The hash as `sha256:<hex>`."""
        return hash_text(self.raw_hash)


_ID_BYTES = 16

_FORMS = {
    (int, bytes, str, int, str, int, str, str, str, bytes),
    (int, bytes, str, int, str, int, str, type(None), str, bytes),
}
"""The types of the values of an event; the subject may be None."""

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
    """Return the position of the newest event; 0 without events."""
    return int(connection.execute("SELECT max(seq) FROM events").fetchone()[0] or 0)


def events_of_types(
    connection: sqlite3.Connection, types: Iterable[str]
) -> Iterator[RecordedEvent]:
    """Yield all events of some types, by position."""
    # The CAST also finds a type that was changed to a blob.
    rows = connection.execute(f"{SELECT}{_OF_TYPES}", (dumps([*types]),))
    return map(RecordedEvent._make, rows)


def events_after(
    connection: sqlite3.Connection, stream: str, after: int, limit: int
) -> list[RecordedEvent]:
    """Return the next events of a stream after a version."""
    sql = f"{SELECT} WHERE streams.name = ? AND events.version > ? ORDER BY events.version LIMIT ?"
    return list(map(RecordedEvent._make, connection.execute(sql, (stream, after, limit))))


def stored_texts(connection: sqlite3.Connection, refs: Iterable[str]) -> sqlite3.Cursor:
    """Select reference, salt, digest and body of texts that have a row, by reference."""
    return connection.execute(
        "SELECT ref, salt, digest, body FROM contents"
        " WHERE ref IN (SELECT value FROM json_each(?)) ORDER BY ref",
        (dumps([*refs]),),
    )


def hash_at(connection: sqlite3.Connection, stream: str, version: int) -> bytes | None:
    """Return the tagged hash of an event; None if there is no such event."""
    row = connection.execute(
        "SELECT hash FROM events WHERE version = ?"
        " AND stream = (SELECT id FROM streams WHERE name = ?)",
        (version, stream),
    ).fetchone()
    return row[0] if row else None
