"""Reads what can be read of a damaged file, row by row, without its indexes.

This module only finds rows. Merging them checks their hashes, as always.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kindlm_migrations import EVENT_LOG
from kindlm_store.append import WITHHELD
from kindlm_store.erasing import refs_in

if TYPE_CHECKING:
    from collections.abc import Iterator

_COLUMNS = {
    "event_types": "id, name",
    "streams": "id, name, version, head, sealed",
    "events": "seq, id, stream, version, type, schema, at, subject, data, hash",
    "contents": "ref, salt, digest, body",
}
"""The tables of a log, with their columns in order."""

_PAGE = 500
_PATIENCE = 40
"""So many pages of row ids without a row end a table: one damaged page holds fewer."""


def scratch_log(where: str = "") -> sqlite3.Connection:
    """An empty log to fill and read, without triggers; the caller closes it.

    It lies in memory, and where that is not enough in a file without a name. `:memory:` is without
    that file.
    """
    scratch = sqlite3.connect(where, isolation_level=None, check_same_thread=False)
    scratch.execute("PRAGMA synchronous = OFF")
    for statement in EVENT_LOG:
        if statement.strip().startswith(("CREATE TABLE", "CREATE INDEX")):
            scratch.execute(statement)
    return scratch


def salvage(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Copy all rows of a log that can be read into a `scratch_log`; the caller closes it.

    Texts that events refer to and that are not among them are withheld there.
    """
    copy = scratch_log()
    copy.execute("BEGIN")
    for table, columns in _COLUMNS.items():
        marks = ",".join("?" * len(columns.split()))
        insert = f"INSERT OR IGNORE INTO {table} VALUES ({marks})"  # noqa: S608
        for number, *row in _readable(connection, table):
            # Most first columns are the row id, and stored as that alone.
            copy.execute(insert, row if table == "contents" else (number, *row[1:]))
    payloads = copy.execute("SELECT data FROM events WHERE typeof(data) = 'text'")
    copy.executemany(
        "INSERT OR IGNORE INTO contents (ref, salt) VALUES (?, ?)",
        [(ref, WITHHELD) for ref in refs_in(data for (data,) in payloads)],
    )
    copy.execute("COMMIT")
    return copy


def is_damaged(connection: sqlite3.Connection) -> bool:
    """Whether SQLite finds anything wrong with the pages of the file."""
    try:
        return bool(connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok")
    except sqlite3.DatabaseError:
        return True


def _readable(connection: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table that can be read, each behind its row id."""
    select = f"SELECT rowid, * FROM {table} NOT INDEXED WHERE"  # noqa: S608
    after, fruitless = 0, 0
    while fruitless < _PATIENCE:
        try:
            rows = connection.execute(
                f"{select} rowid > ? ORDER BY rowid LIMIT ?", (after, _PAGE)
            ).fetchall()
            if not rows:
                return
            after = rows[-1][0]
        except (sqlite3.Error, UnicodeDecodeError):
            rows = []
            for number in range(after + 1, after + _PAGE + 1):
                with suppress(sqlite3.Error, UnicodeDecodeError):
                    rows += connection.execute(f"{select} rowid = ?", (number,)).fetchall()
            after += _PAGE
        fruitless = 0 if rows else fruitless + 1
        yield from rows
