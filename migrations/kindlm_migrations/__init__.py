"""The tables, triggers and views of an event log, and the migrations that make them.

Only `apply` loads sqlite-utils, since most files need no migration. Projections are rebuilt, not
migrated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

    from sqlite_utils import Database

__all__ = ["APPLICATION_ID", "EVENT_LOG", "VERSION", "apply"]

APPLICATION_ID = 0x4B4E444C
"""`PRAGMA application_id` of an event log: the letters KNDL."""

VERSION = 1
"""The number of migrations, and `PRAGMA user_version` of a file that has all of them."""

_TABLES = (
    """
    CREATE TABLE event_types (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE
    )
    """,
    """
    CREATE TABLE streams (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL,
        head BLOB NOT NULL,
        sealed INTEGER NOT NULL
    )
    """,
    """
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        id BLOB NOT NULL UNIQUE,
        stream INTEGER NOT NULL REFERENCES streams(id),
        version INTEGER NOT NULL,
        type INTEGER NOT NULL REFERENCES event_types(id),
        schema INTEGER NOT NULL,
        at TEXT NOT NULL,
        subject TEXT,
        data TEXT NOT NULL,
        hash BLOB NOT NULL,
        UNIQUE (stream, version)
    )
    """,
    "CREATE INDEX events_type ON events (type)",
    "CREATE INDEX events_subject ON events (subject) WHERE subject IS NOT NULL",
    """
    CREATE TABLE contents (
        ref TEXT NOT NULL PRIMARY KEY,
        salt BLOB,
        digest BLOB,
        body TEXT
    )
    """,
    # Not unique: a merged file may have the same text with two salts.
    "CREATE INDEX contents_digest ON contents (digest) WHERE digest IS NOT NULL",
    """
    CREATE TABLE projections (
        name TEXT NOT NULL PRIMARY KEY,
        version INTEGER NOT NULL,
        checkpoint INTEGER NOT NULL,
        error TEXT,
        tables TEXT NOT NULL,
        views TEXT NOT NULL
    )
    """,
)

_IN_ORDER = """
    CREATE TRIGGER events_insert BEFORE INSERT ON events BEGIN
        SELECT RAISE(ABORT, 'events are appended in order, once')
            WHERE NEW.seq <= (SELECT max(seq) FROM events)
            OR EXISTS (SELECT 1 FROM events WHERE id = NEW.id)
            OR EXISTS (SELECT 1 FROM events WHERE stream = NEW.stream AND version = NEW.version);
        SELECT RAISE(ABORT, 'the stream is sealed')
            WHERE (SELECT sealed FROM streams WHERE id = NEW.stream);
    END
    """

# INSERT OR REPLACE deletes the old row without firing DELETE triggers, unless the connection sets
# recursive_triggers. So triggers look for an old row before the insert.
_HAS_NAME = "EXISTS (SELECT 1 FROM {} WHERE id = NEW.id OR name = NEW.name)"
_HAS_REF = "EXISTS (SELECT 1 FROM contents WHERE ref = NEW.ref)"
_ANOTHER_STREAM = """OLD.sealed OR NEW.version <= OLD.version
        OR NEW.id IS NOT OLD.id OR NEW.name IS NOT OLD.name"""
_ANOTHER_TEXT = """NEW.ref IS NOT OLD.ref OR NEW.salt IS NOT NULL
        OR NEW.digest IS NOT NULL OR NEW.body IS NOT NULL"""

_REFUSED = (
    ("events", "UPDATE", None, "events are never changed"),
    ("events", "DELETE", None, "events are never deleted"),
    ("streams", "INSERT", _HAS_NAME.format("streams"), "the stream exists"),
    ("streams", "UPDATE", _ANOTHER_STREAM, "a stream only grows, and never once it is sealed"),
    ("streams", "DELETE", None, "streams are never deleted"),
    ("event_types", "INSERT", _HAS_NAME.format("event_types"), "the event type exists"),
    ("event_types", "UPDATE", None, "event types are never changed"),
    ("event_types", "DELETE", None, "event types are never deleted"),
    ("contents", "INSERT", _HAS_REF, "the text exists"),
    ("contents", "UPDATE", _ANOTHER_TEXT, "a text is kept or erased whole, never changed"),
    ("contents", "DELETE", None, "texts are erased, never deleted"),
)
"""The changes that triggers refuse: table, statement, condition, and message."""


def _refusal(table: str, change: str, condition: str | None, words: str) -> str:
    """Return the trigger that refuses a change; files have exactly this text."""
    when = "" if condition is None else f"\n    WHEN {condition}"
    return f"""
    CREATE TRIGGER {table}_{change.lower()} BEFORE {change} ON {table}{when} BEGIN
        SELECT RAISE(ABORT, '{words}');
    END
    """


_VIEWS = (
    """
    CREATE VIEW event_log AS
    SELECT
        events.seq AS seq,
        lower(
            substr(hex(events.id), 1, 8) || '-' || substr(hex(events.id), 9, 4) || '-'
            || substr(hex(events.id), 13, 4) || '-' || substr(hex(events.id), 17, 4) || '-'
            || substr(hex(events.id), 21)
        ) AS id,
        streams.name AS stream,
        events.version AS version,
        event_types.name AS type,
        events.schema AS schema,
        events.at AS at,
        events.subject AS subject,
        events.data AS data,
        'sha256:' || lower(substr(hex(events.hash), 3)) AS hash
    FROM events
    JOIN streams ON streams.id = events.stream
    JOIN event_types ON event_types.id = events.type
    """,
    "CREATE VIEW content_texts AS SELECT ref, body FROM contents",
)

EVENT_LOG = (*_TABLES, _IN_ORDER, *(_refusal(*each) for each in _REFUSED), *_VIEWS)
"""The statements of the first migration, in order."""


def apply(connection: sqlite3.Connection) -> None:
    """Bring an event log, or an empty file, to `VERSION`, in the caller's immediate transaction.

    Migrations and their statements are never edited.
    """
    from sqlite_utils import Database, Migrations

    migrations = Migrations("event_log")

    @migrations()
    def m001_event_log(db: Database) -> None:
        for statement in EVENT_LOG:
            db.execute(statement)

    migrations.apply(Database(connection, execute_plugins=False))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
