"""Reads the readable rows of a damaged file, without its indexes.

Hashes are checked later, when the rows are merged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from kindlm_migrations import EVENT_LOG
from kindlm_store.append import WITHHELD
from kindlm_store.erasing import refs_in

_TABLES = ("event_types", "streams", "events", "contents")

_PAGE = 500
_PATIENCE = 40
"""A table ends after 40 pages of row ids without a row: one damaged page has fewer rows."""


def scratch_log(where: str = "") -> sqlite3.Connection:
    """Return an empty log without triggers; the caller closes it.

    It is in memory; a large one moves to a temporary file, unless `where` is `:memory:`.
    """
    scratch = sqlite3.connect(where, isolation_level=None, check_same_thread=False)
    scratch.execute("PRAGMA synchronous = OFF")
    for statement in EVENT_LOG:
        if statement.strip().startswith(("CREATE TABLE", "CREATE INDEX")):
            scratch.execute(statement)
    return scratch


def salvage(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Copy the readable rows of a log into a `scratch_log`; the caller closes it.

    Texts that are missing become withheld ones.
    """
    copy = scratch_log()
    copy.execute("BEGIN")
    for table in _TABLES:
        for number, *row in _readable(connection, table):
            if table != "contents":
                row[0] = number  # an INTEGER PRIMARY KEY is stored as the row id alone
            marks = ",".join("?" * len(row))
            copy.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)  # noqa: S608
    payloads = copy.execute("SELECT data FROM events WHERE typeof(data) = 'text'")
    copy.executemany(
        "INSERT OR IGNORE INTO contents (ref, salt) VALUES (?, ?)",
        [(ref, WITHHELD) for ref in refs_in(data for (data,) in payloads)],
    )
    copy.execute("COMMIT")
    return copy


def is_damaged(connection: sqlite3.Connection) -> bool:
    """Return whether SQLite's integrity check finds the file damaged."""
    try:
        return bool(connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok")
    except sqlite3.DatabaseError:
        return True


def _readable(connection: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """Yield the readable rows of a table, each after its row id."""
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
