"""Reads what can be read of a damaged file, row by row, past its indexes.

Where SQLite cannot even read which tables there are, a copy of the file is given a first page that
lists them.
What is salvaged is held to its hashes like everything else that is taken; this only finds it.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
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

_MAGIC = b"SQLite format 3\0"
_DEFAULT_PAGE = 4096
"""Bytes: what logs are created with; asked for where the header of the file is damaged."""

_LARGEST_PAGE = 65_536
_ROOTS = re.compile(
    rb"table(%b)\1(.{1,4}?)CREATE TABLE \1\b" % "|".join(_COLUMNS).encode(), re.DOTALL
)
"""A row of the schema as it lies in the file: kind, name twice, page of the root, statement."""


def scratch_log() -> sqlite3.Connection:
    """An empty log that only `EventLog.take` reads: without triggers; the caller closes it.

    It lies in memory, and where that is not enough in a file without a name.
    """
    scratch = sqlite3.connect("", isolation_level=None, check_same_thread=False)
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


def salvage_file(path: Path) -> sqlite3.Connection | None:
    """`salvage` of a log that SQLite cannot open; None if not even its tables can be found."""
    with TemporaryDirectory(prefix="kindlm-") as folder:
        copy = Path(folder) / "copy.db"
        try:
            # Page by page, with what is in the write-ahead log.
            with (
                closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
        except sqlite3.Error:
            copy.unlink(missing_ok=True)
            shutil.copyfile(path, copy)
        roots = _find_roots(copy)
        if roots.keys() != _COLUMNS.keys():
            return None
        _replace_first_page(copy, roots)
        with closing(sqlite3.connect(copy)) as connection:
            return salvage(connection)


def has_tables(path: Path) -> bool:
    """Whether the tables of a log can be found in a file that SQLite cannot open."""
    return _find_roots(path).keys() == _COLUMNS.keys()


def is_damaged(connection: sqlite3.Connection) -> bool:
    """Whether SQLite finds anything wrong with the pages of the file."""
    try:
        return bool(connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok")
    except sqlite3.DatabaseError:
        return True


def _find_roots(path: Path) -> dict[str, int]:
    """The root pages of the tables of a log by name, those that are found: the first of each."""
    roots: dict[str, int] = {}
    rest = b""
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            for name, page in _ROOTS.findall(rest + piece):
                roots.setdefault(name.decode(), int.from_bytes(page))
            if len(roots) == len(_COLUMNS):
                break
            rest = piece[-_DEFAULT_PAGE:]
    return roots


def _replace_first_page(path: Path, roots: dict[str, int]) -> None:
    """Give a file a first page with the tables of a log, without their indexes, and no others."""
    with path.open("r+b") as file:
        header = file.read(18)
        size = int.from_bytes(header[16:18])
        size = _LARGEST_PAGE if size == 1 else size
        if not header.startswith(_MAGIC):
            size = _DEFAULT_PAGE
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
            made.execute(f"PRAGMA page_size = {size}")
            # Keys would need an index.
            for table, columns in _COLUMNS.items():
                made.execute(f"CREATE TABLE {table} ({columns})")
            made.execute("PRAGMA writable_schema = ON")
            for root in roots.items():
                made.execute("UPDATE sqlite_master SET rootpage = ?2 WHERE name = ?1", root)
            page = bytearray(made.serialize()[:size])
        page[28:32] = (path.stat().st_size // size).to_bytes(4)
        file.seek(0)
        file.write(page)


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
