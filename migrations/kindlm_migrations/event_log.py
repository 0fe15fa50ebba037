"""The tables, triggers and views of an event log, as numbered migrations that are never edited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlite_utils import Migrations

from kindlm_migrations import MIGRATION_SET
from kindlm_migrations.statements import EVENT_LOG

if TYPE_CHECKING:
    from sqlite_utils import Database

migrations = Migrations(MIGRATION_SET)


@migrations()
def m001_event_log(db: Database) -> None:
    """Create the event log: streams, events, contents, projection checkpoints."""
    for statement in EVENT_LOG:
        db.execute(statement)
