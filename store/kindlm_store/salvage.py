"""Reads what can be read of a damaged file, row by row, past its indexes.

Where SQLite cannot even read which tables there are, a copy of the file is given a first page that
lists them.
What is salvaged is held to its hashes like everything else that is taken; this only finds it.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kindlm_migrations.statements import EVENT_LOG

if TYPE_CHECKING:
    from collections.abc import Iterator

_TABLES = ("event_types", "streams", "events", "contents")
_PAGE = 500
_PATIENCE = 40
"""So many pages of row ids without a row end a table: one damaged page holds fewer."""

_MAGIC = b"SQLite format 3\0"
_DEFAULT_PAGE = 4096
"""Bytes: what logs are created with; asked for where the header of the file is damaged."""

_LARGEST_PAGE = 65_536
_ROOTS = re.compile(
    rb"table(%b)\1(.{1,4}?)CREATE TABLE \1\b" % "|".join(_TABLES).encode(), re.DOTALL
)
"""A row of the schema as it lies in the file: kind, name twice, page of the root, statement."""


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


def salvage_file(path: Path) -> sqlite3.Connection | None:
    """`salvage` of a log that SQLite can not open; None if not even its tables can be found."""
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
        if roots.keys() != set(_TABLES):
            return None
        _replace_first_page(copy, roots)
        with closing(sqlite3.connect(copy)) as connection:
            return salvage(connection)


def has_tables(path: Path) -> bool:
    """Whether the tables of a log can be found in a file that SQLite can not open."""
    return _find_roots(path).keys() == set(_TABLES)


def _find_roots(path: Path) -> dict[str, int]:
    """The root pages of the tables of a log by name, those that are found: the first of each."""
    roots: dict[str, int] = {}
    rest = b""
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            for name, page in _ROOTS.findall(rest + piece):
                roots.setdefault(name.decode(), int.from_bytes(page))
            if len(roots) == len(_TABLES):
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
        page = bytearray(_first_page(size, roots))
        page[28:32] = (path.stat().st_size // size).to_bytes(4)
        file.seek(0)
        file.write(page)


def _first_page(size: int, roots: dict[str, int]) -> bytes:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as ours:
        for statement in EVENT_LOG:
            if statement.strip().startswith("CREATE TABLE"):
                ours.execute(statement)
        columns = {
            table: ", ".join(
                # It is the row id; any other key would need an index.
                f"{name} INTEGER PRIMARY KEY" if key and kind == "INTEGER" else name
                for _, name, kind, _, _, key in ours.execute(f"PRAGMA table_info({table})")
            )
            for table in _TABLES
        }
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        made.execute(f"PRAGMA page_size = {size}")
        for table in _TABLES:
            made.execute(f"CREATE TABLE {table} ({columns[table]})")
        made.execute("PRAGMA writable_schema = ON")
        for table in _TABLES:
            made.execute(
                "UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (roots[table], table)
            )
        return made.serialize()[:size]


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
