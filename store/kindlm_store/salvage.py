"""Reads what can be read of a damaged file, row by row, past its indexes.

What is salvaged is held to its hashes like everything else that is taken; this only finds it.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from kindlm_migrations.statements import EVENT_LOG

if TYPE_CHECKING:
    from collections.abc import Iterator

_TABLES = ("event_types", "streams", "events", "contents")
_PAGE = 500
_PATIENCE = 40
"""So many pages of row ids without a row end a table: one damaged page holds fewer."""


def salvage(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Copy all rows of a log that can be read into a database of its own; the caller closes it.

    It lies in memory, and where that is not enough in a file without a name.
    """
    copy = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    copy.execute("PRAGMA synchronous = OFF")
    copy.execute("BEGIN")
    for statement in EVENT_LOG:
        if statement.strip().startswith(("CREATE TABLE", "CREATE INDEX")):
            copy.execute(statement)
    for table in _TABLES:
        for row in _readable(connection, table):
            marks = ",".join("?" * len(row))
            copy.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)  # noqa: S608
    copy.execute("COMMIT")
    return copy


def is_damaged(connection: sqlite3.Connection) -> bool:
    """Whether SQLite finds anything wrong with the pages of the file."""
    try:
        return bool(connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok")
    except sqlite3.DatabaseError:
        return True


def _readable(connection: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    select = f"SELECT rowid, * FROM {table} NOT INDEXED WHERE"  # noqa: S608
    after, fruitless = 0, 0
    while fruitless < _PATIENCE:
        try:
            page = connection.execute(
                f"{select} rowid > ? ORDER BY rowid LIMIT ?", (after, _PAGE)
            ).fetchall()
        except (sqlite3.Error, UnicodeDecodeError):
            rows = list(_one_by_one(connection, f"{select} rowid = ?", after))
            after += _PAGE
        else:
            if not page:
                return
            rows, after = page, page[-1][0]
        fruitless = 0 if rows else fruitless + 1
        yield from (tuple(row)[1:] for row in rows)


def _one_by_one(connection: sqlite3.Connection, select: str, after: int) -> Iterator[Any]:
    for number in range(after + 1, after + _PAGE + 1):
        try:
            yield from connection.execute(select, (number,)).fetchall()
        except (sqlite3.Error, UnicodeDecodeError):
            continue
