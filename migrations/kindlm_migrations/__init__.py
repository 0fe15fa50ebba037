"""The tables, triggers and views of an event log, and the migrations that make them.

Importing this package is cheap: sqlite-utils is loaded by `apply` alone, since most openings of a
log need no migration. Facts are migrated here; projections are rebuilt, never migrated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

    from sqlite_utils import Database

__all__ = ["APPLICATION_ID", "EVENT_LOG", "KNOWN", "MIGRATION_SET", "VERSION", "apply"]

APPLICATION_ID = 0x4B4E444C
"""`PRAGMA application_id` of an event log: the letters KNDL."""

MIGRATION_SET = "event_log"
"""Name of the migration set in sqlite-utils' own table."""

KNOWN = ("m001_event_log",)
"""Every migration there is, in order. A file that knows another one is newer than this code."""

VERSION = len(KNOWN)
"""`PRAGMA user_version` of a file that has all migrations."""

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
    # Not unique: two files that hold the same text under two salts can be merged.
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

# INSERT OR REPLACE deletes the row that is in the way without firing DELETE triggers (unless the
# connection set recursive_triggers), so that a row in the way is looked for before the insert.
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
"""What triggers refuse: of a table, what is done to a row, on which condition, and the words."""


def _refusal(table: str, change: str, condition: str | None, words: str) -> str:
    """The trigger for what is refused, letter by letter as files have it."""
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
"""What the first migration creates, in order."""


def apply(connection: sqlite3.Connection) -> None:
    """Bring an event log, or an empty file, to `VERSION`.

    The caller has begun an immediate transaction and commits it, so that a file is either
    migrated as a whole or not at all. Migrations and their statements are never edited.
    """
    from sqlite_utils import Database, Migrations

    migrations = Migrations(MIGRATION_SET)

    @migrations()
    def m001_event_log(db: Database) -> None:
        for statement in EVENT_LOG:
            db.execute(statement)

    migrations.apply(Database(connection, execute_plugins=False))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
