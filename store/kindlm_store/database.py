"""Opens the file of an event log: inspects it, creates or migrates it, connects to it.

Every statement that can meet a lock of another process waits here, so that no caller sees "database
is locked". A file of another application or of a newer version is only read.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import kindlm_migrations as schema
from kindlm_store.locks import setup_lock
from kindlm_store.store_errors import (
    CorruptDatabaseError,
    EmptyFileError,
    NewerDatabaseError,
    NotAnEventLogError,
    NotSqliteError,
    OpenError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

Synchronous = Literal["OFF", "NORMAL", "FULL", "EXTRA"]

_Unready = Literal["missing", "empty", "older"]
"""Why a file is not an event log of this version: it has to be created or migrated first."""

_READ_WAIT = 60.0
"""Seconds a reader waits for a lock; in WAL mode only recovery and setup lock readers out."""

_LONGEST_PAUSE = 0.005
"""Seconds: while all writers pause, the file lies idle; a try costs some microseconds."""

_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_NO_WAL_INDEX = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
_INCREMENTAL = 2

_WAL_HEADER_BYTES = 32
_WAL_MAGIC = {b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"}

_CHECKPOINT_PAGES = 4_000
"""Pages in the WAL before it is written back: each checkpoint costs two fsyncs of the file."""


class _Forks:
    """Counts forks of this process, since asking for the process id each time costs a call."""

    def __init__(self) -> None:
        self.count = 0
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.count += 1


forks = _Forks()

FORKED = "the event log was opened before this process was forked: open it again"
"""A forked process has neither the writer thread nor a right to the connections."""


def connect_writer(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    """The write connection of a log whose file `make_ready` has prepared.

    Raises:
        OpenError: The file cannot be written.
    """
    with _opening(path):
        if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            raise OpenError(path, "cannot be written: the file or its folder is read-only")
        connection = sqlite3.connect(
            path, timeout=_READ_WAIT, isolation_level=None, check_same_thread=False
        )
        for pragma in (
            f"synchronous = {synchronous}",
            "secure_delete = ON",
            "recursive_triggers = ON",
            # Pages for a rollback inside a transaction: in a file they would be written once more.
            "temp_store = MEMORY",
            f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
            "cache_size = -16000",
            # `begin_immediate` waits for locks from here on, and a checkpoint does not wait.
            "busy_timeout = 0",
        ):
            connection.execute(f"PRAGMA {pragma}")
        return connection


def make_ready(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    """`open_reader`, after creating or migrating the file if needed.

    Raises:
        OpenError: The file cannot be opened as an event log.
    """
    with _opening(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(found := _inspect(path), str):
            with setup_lock(path):
                if isinstance(found := _inspect(path), str):
                    _set_up(path, synchronous)
                    found = _connect_read_only(path)
        return found


def open_reader(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """A connection to an event log that only reads, without a writer thread; sees a live WAL.

    Raises:
        EmptyFileError: Nothing was ever recorded in the file.
        OpenError: The file is not there, or cannot be opened as an event log.
    """
    file = Path(path)
    with _opening(file):
        match _inspect(file):
            case "missing":
                raise OpenError(file, "no such file")
            case "empty":
                raise EmptyFileError(file, "is empty")
            case "older":
                raise NotAnEventLogError(file, "is in an older format: open it for writing once")
            case connection:
                return connection


def begin_immediate(connection: sqlite3.Connection) -> None:
    """Begin a write transaction, however long other writers hold theirs."""
    pause = _LONGEST_PAUSE / 5
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_locked(error):
                raise
        else:
            return
        # Jitter: writers that wait in step would collide again and again.
        time.sleep(random.uniform(pause / 4, pause))  # noqa: S311 - no secret
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def is_locked(error: sqlite3.OperationalError) -> bool:
    """Whether a statement only failed because another connection held a lock."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _LOCKED


def roll_back(connection: sqlite3.Connection) -> None:
    """Leave the open transaction, if an error has not ended it already."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


@contextmanager
def immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """A write transaction: committed at the end, rolled back by an exception."""
    begin_immediate(connection)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


@contextmanager
def snapshot(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Read one snapshot of a file, through a read-only connection."""
    with translated(path):
        connection.execute("BEGIN")
    try:
        yield
    finally:
        roll_back(connection)


def truncate_wal(connection: sqlite3.Connection) -> bool:
    """Write the WAL back into the file and empty it, unless a reader or a writer uses it.

    Returns:
        Whether it is empty now.
    """
    busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    return not busy


def unreadable_wal(path: Path) -> Path | None:
    """The write-ahead log of a file if it is invalid: SQLite ignores it and its content.

    After a power cut, a WAL that was just begun is all zeros, and had no content.
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
    uri = path.absolute().as_uri()
    connection = _query_only(f"{uri}?mode=ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchall()
    except sqlite3.OperationalError as error:
        connection.close()
        wal = path.with_name(path.name + "-wal")
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code not in _NO_WAL_INDEX or wal.exists():
            raise
        # A read-only folder takes no WAL index; without a WAL there is no writer to miss.
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


def _inspect(path: Path) -> _Unready | sqlite3.Connection:
    """A read-only connection to an event log, with the state of the file if it is not one yet.

    Raises:
        NotAnEventLogError: It is something else.
        NewerDatabaseError: A newer version wrote it.
    """
    if not path.exists():
        return "missing"
    # Read-only: the last writing connection to close would write a left-over WAL back.
    connection = _connect_read_only(path)
    with ExitStack() as unused:
        unused.callback(connection.close)
        # One snapshot: another process may be setting the file up.
        connection.execute("BEGIN")
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        # A process that was killed while it set the file up leaves a header without tables.
        if not tables and not version and application in (0, schema.APPLICATION_ID):
            return "empty"
        if application != schema.APPLICATION_ID:
            raise NotAnEventLogError(path, "is the SQLite database of another application")
        done = connection.execute(
            "SELECT name FROM _sqlite_migrations WHERE migration_set = ?", (schema.MIGRATION_SET,)
        )
        if version > schema.VERSION or {name for (name,) in done}.difference(schema.KNOWN):
            raise NewerDatabaseError(
                path,
                f"has version {version}, this program knows versions up to {schema.VERSION}:"
                " update the program",
            )
        connection.execute("COMMIT")
        if version < schema.VERSION:
            return "older"
        unused.pop_all()
    return connection


def _set_up(path: Path, synchronous: Synchronous) -> None:
    """Create or migrate the file; the caller holds the setup lock."""
    # 0600: recorded conversations are private; SQLite gives the WAL the same mode.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(path, timeout=_READ_WAIT, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA encoding = 'UTF-8'")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
        if connection.execute("PRAGMA auto_vacuum").fetchone()[0] != _INCREMENTAL:
            connection.execute("VACUUM")
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise OpenError(path, "this file system does not support write-ahead logging")
        with immediate(connection):
            schema.apply(connection)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Convert SQLite's exceptions to `OpenError` and its subclasses."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            raise NotSqliteError(path, "is not an SQLite database") from error
        if code == sqlite3.SQLITE_CORRUPT:
            raise CorruptDatabaseError(path, f"is damaged ({error})") from error
        raise OpenError(path, f"cannot be used ({error})") from error
    except UnicodeDecodeError as error:
        # Python cannot even read SQLite's message: it quotes damaged text.
        raise CorruptDatabaseError(path, "is damaged (its names are not UTF-8)") from error


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    """`translated`, and also errors of the file system."""
    try:
        with translated(path):
            yield
    except OSError as error:
        raise OpenError(path, f"cannot be used ({error.strerror or error})") from error
