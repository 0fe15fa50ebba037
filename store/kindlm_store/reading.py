"""Reading events and texts, through any connection to a log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kindlm_store.events import RecordedEvent

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

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
    rows = connection.execute(f"{SELECT}{_OF_TYPES}", (json.dumps([*types]),))
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
