"""Opens the file of an event log: inspects it, creates or migrates it, connects to it.

Statements wait for locks of other processes here, so that no caller sees "database is locked". A
file of another application or of a newer version is only read.
"""

from __future__ import annotations

import logging
import math
import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import kindlm_migrations as schema
from kindlm_store.locks import setup_lock
from kindlm_store.store_errors import (
    CorruptDatabaseError,
    EmptyFileError,
    NewerDatabaseError,
    NotAnEventLogError,
    OpenError,
)

_log = logging.getLogger(__name__)

SYNCHRONOUS = "FULL"
"""SQLite's setting that survives a power cut."""

_READ_WAIT = 60.0
"""Seconds a reader waits for a lock; in WAL mode, only recovery and setup exclude readers."""

_LONGEST_PAUSE = 0.005
"""Seconds between tries to begin a transaction; a try takes some microseconds."""

_SILENT_S = 10.0
"""After this time (seconds), a waiting writer says so."""

_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_NO_WAL_INDEX = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
_INCREMENTAL = 2

_WAL_HEADER_BYTES = 32
_WAL_MAGIC = {b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"}

_CHECKPOINT_PAGES = 4_000
"""Pages in the WAL before it is written back: each checkpoint costs two fsyncs of the file."""


FORKED = "the event log was opened before this process was forked: open it again"
"""A forked process has no writer thread, and must not use SQLite connections of its parent."""


def open_writer(path: Path) -> sqlite3.Connection:
    """Return a write connection to an event log; create or migrate the file if needed.

    Raises `OpenError` if it can be no event log, or cannot be written.
    """
    with _opening(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if _state_of(path) != "ready":
            with setup_lock(path):
                if _state_of(path) != "ready":
                    _set_up(path)
        return _connect_writer(path)


def _connect_writer(path: Path) -> sqlite3.Connection:
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise OpenError(path, "cannot be written: the file or its folder is read-only")
    connection = sqlite3.connect(
        path, timeout=_READ_WAIT, isolation_level=None, check_same_thread=False
    )
    for pragma in (
        f"synchronous = {SYNCHRONOUS}",
        "secure_delete = ON",
        "recursive_triggers = ON",
        # In a file, pages for a rollback to a savepoint would be written once more.
        "temp_store = MEMORY",
        f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
        "cache_size = -16000",
    ):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def use_wal(connection: sqlite3.Connection, path: Path) -> None:
    """Switch to write-ahead logging, in which readers delay no commit.

    Copies by SQLite's `VACUUM INTO` are in another mode.
    """
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise OpenError(path, "is in a file system without write-ahead logging")
    # From here on, `begin_immediate` waits for locks; a checkpoint must not wait.
    connection.execute("PRAGMA busy_timeout = 0")


def open_reader(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """Return a read-only connection to an event log; it sees the commits of live writers.

    Raises `EmptyFileError` if nothing was ever recorded in the file, and `OpenError` if it does not
    exist or is no event log.
    """
    file = Path(path)
    with _opening(file):
        match _state_of(file):
            case "missing":
                raise OpenError(file, "does not exist")
            case "empty":
                raise EmptyFileError(file, "is empty")
            case "older":
                raise NotAnEventLogError(file, "is in an older format: open it for writing once")
        return _connect_read_only(file)


def begin_immediate(connection: sqlite3.Connection) -> None:
    """Begin a write transaction, after waiting for other writers without limit."""
    warn_at = time.monotonic() + _SILENT_S
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_locked(error):
                raise
        else:
            return
        if time.monotonic() > warn_at:
            file = connection.execute("PRAGMA database_list").fetchone()[2]
            _log.warning("Waiting for another program, which has locked %s for writing.", file)
            warn_at = math.inf
        # Jitter, since writers that wait in step would collide again.
        time.sleep(random.uniform(_LONGEST_PAUSE / 20, _LONGEST_PAUSE))  # noqa: S311 - no secret


def code_of(error: BaseException | None) -> int:
    """Return SQLite's code for an error; 0 if it has none, like those of Python's module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_locked(error: sqlite3.OperationalError) -> bool:
    """Return whether a statement failed only because another connection held a lock."""
    return code_of(error) in _LOCKED


def roll_back(connection: sqlite3.Connection) -> None:
    """Roll the open transaction back, if an error has not ended it already."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


@contextmanager
def immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a write transaction: commit at the end, roll back on an exception."""
    begin_immediate(connection)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


@contextmanager
def snapshot(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Run a read transaction, which sees one snapshot of the file."""
    with translated(path):
        connection.execute("BEGIN")
    try:
        yield
    finally:
        roll_back(connection)


def truncate_wal(connection: sqlite3.Connection) -> bool:
    """Write the WAL back into the file and empty it; return False if it is in use."""
    busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    return not busy


def unreadable_wal(path: Path) -> Path | None:
    """Return the write-ahead log of a file if it is invalid, so that SQLite ignores its content.

    After a power cut, a new WAL may be all zeros; it had no content.
    """
    wal = path.with_name(path.name + "-wal")
    try:
        with wal.open("rb") as file:
            header = file.read(_WAL_HEADER_BYTES)
    except OSError:
        return None
    return wal if any(header) and header[:4] not in _WAL_MAGIC else None


def _connect_read_only(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise NotAnEventLogError(path, "is not a file")
    # Path.as_uri() imports urllib.request in Python 3.14, which takes longer than the start.
    place = path.absolute().as_posix()
    uri = "file://" + quote(os.fsencode(place if place[0] == "/" else f"/{place}"), safe="/:")
    connection = _query_only(f"{uri}?mode=ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchall()
    except sqlite3.OperationalError as error:
        connection.close()
        wal = path.with_name(path.name + "-wal")
        if code_of(error) not in _NO_WAL_INDEX or wal.exists():
            raise
        # SQLite cannot make a WAL index in a read-only folder. Without a WAL it needs none.
        connection = _query_only(f"{uri}?mode=ro&immutable=1")
    except BaseException:
        connection.close()
        raise
    return connection


def _query_only(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, timeout=_READ_WAIT, isolation_level=None, check_same_thread=False
    )
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA query_only = ON")
    return connection


def _state_of(path: Path) -> Literal["missing", "empty", "older", "ready"]:
    """Return whether a file is an event log, or why it has to be created or migrated first.

    Raises `NotAnEventLogError` for any other file, and `NewerDatabaseError` for a newer version.
    """
    if not path.exists():
        return "missing"
    # A writing connection would write a left-over WAL back when it is closed.
    with closing(_connect_read_only(path)) as connection:
        # One snapshot, since another process may be setting the file up.
        connection.execute("BEGIN")
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        # A process that was killed during setup leaves a header without tables.
        if not tables and not version and application in (0, schema.APPLICATION_ID):
            return "empty"
        if application != schema.APPLICATION_ID:
            raise NotAnEventLogError(path, "is the SQLite database of another application")
        if version > schema.VERSION:
            raise NewerDatabaseError(
                path,
                f"has version {version}, this program knows versions up to {schema.VERSION}:"
                " update the program",
            )
    return "older" if version < schema.VERSION else "ready"


def _set_up(path: Path) -> None:
    """Create or migrate the file; the caller holds the setup lock."""
    # Recorded conversations are private; SQLite gives the WAL the same mode.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    with closing(_connect_writer(path)) as connection:
        connection.execute("PRAGMA encoding = 'UTF-8'")
        connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
        if connection.execute("PRAGMA auto_vacuum").fetchone()[0] != _INCREMENTAL:
            connection.execute("VACUUM")
        use_wal(connection, path)
        with immediate(connection):
            schema.apply(connection)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Convert SQLite's exceptions to `OpenError` and its subclasses."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if code_of(error) == sqlite3.SQLITE_NOTADB:
            raise NotAnEventLogError(path, "is not an SQLite database") from error
        if code_of(error) == sqlite3.SQLITE_CORRUPT:
            raise CorruptDatabaseError(path, f"is damaged ({error})") from error
        raise OpenError(path, f"cannot be used ({error})") from error
    except UnicodeDecodeError as error:
        # SQLite's message quotes damaged text.
        raise CorruptDatabaseError(path, "is damaged (its names are not UTF-8)") from error
    except OverflowError as error:
        raise CorruptDatabaseError(path, "is damaged (no position is left)") from error


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    """Convert SQLite's exceptions and errors of the file system to `OpenError`."""
    try:
        with translated(path):
            yield
    except OSError as error:
        raise OpenError(path, f"cannot be used ({error.strerror or error})") from error
