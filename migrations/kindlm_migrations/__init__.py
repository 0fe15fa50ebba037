"""Schema changes of the event log.

Importing this package is cheap: sqlite-utils is loaded by `apply` alone, since most openings of a
log need no migration. Facts are migrated here; projections are rebuilt, never migrated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

__all__ = ["APPLICATION_ID", "KNOWN", "MIGRATION_SET", "VERSION", "apply"]

APPLICATION_ID = 0x4B4E444C
"""`PRAGMA application_id` of an event log: the letters KNDL."""

MIGRATION_SET = "event_log"
"""Name of the migration set in sqlite-utils' own table."""

KNOWN = ("m001_event_log",)
"""Every migration there is, in order. A file that knows another one is newer than this code."""

VERSION = len(KNOWN)
"""`PRAGMA user_version` of a file that has all migrations."""


def apply(connection: sqlite3.Connection) -> None:
    """Bring an event log, or an empty file, to `VERSION`.

    The caller has begun an immediate transaction and commits it, so that a file is either
    migrated as a whole or not at all.
    """
    from sqlite_utils import Database

    from kindlm_migrations.event_log import migrations

    migrations.apply(Database(connection, execute_plugins=False))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
