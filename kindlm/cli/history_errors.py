"""Errors of a history that cannot be opened, read or written, each with its remedy."""

from __future__ import annotations

import errno
import shlex
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

from kindlm.errors import KindlmError, SourceLocation, broken, not_there
from kindlm.wording import shown_path
from kindlm_store import (
    CorruptDatabaseError,
    EmptyFileError,
    ForeignSchemaError,
    NewerDatabaseError,
    NotAnEventLogError,
    OpenError,
    ProjectionError,
    SchemaProblem,
)
from kindlm_store.database import code_of

RESTORE = "Restore it from a backup; kindlm history backup makes them."

_DAMAGE = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

_NEEDED_BYTES = 128 * 1024
"""The free space that SQLite needs for the index of its write-ahead log, also to read."""


def history_problem(error: BaseException) -> KindlmError | None:
    """Return the error to show for a failure of a history; None if the failure is another one."""
    if isinstance(error, OpenError):
        where = SourceLocation(str(error.path))
        if (full := disk_full(error.path, error.__cause__)) is not None:
            return full
        if isinstance(error, EmptyFileError):
            return nothing_recorded(error.path)
        if isinstance(error, ForeignSchemaError):
            hint = repair_hint(error.problems[0], error.path)
            message = f"Nothing is written into the history: it {error.reason}."
            return broken(message, f"{hint} All of them: kindlm history verify", where=where)
        hints = {
            NewerDatabaseError: "Update kindlm; a newer version recorded this history.",
            CorruptDatabaseError: salvage_hint(error.path),
            NotAnEventLogError: "Name a history of kindlm with --db, or a file that does not exist"
            " yet. Or restore this one from a backup; kindlm history backup makes them.",
        }
        hint = hints.get(type(error), "Check the permissions of the file and of its folder.")
        return broken(f"The history cannot be opened: it {error.reason}.", hint, where=where)
    if isinstance(error, ProjectionError):
        return broken(
            f"The tables of {error.projection!r} cannot be computed: {error}.",
            "No event is lost. Update kindlm. If it is up to date, another program changed the"
            " history: take the events into a new one with"
            " kindlm history merge THIS.db --db NEW.db",
            crash=error,
        )
    # SQLite may find damage in any statement.
    if code_of(error) in _DAMAGE:
        return broken(
            f"The history is damaged: {error}.",
            "See where: kindlm history verify. Merge what can be read into a new history:"
            " kindlm history merge DAMAGED.db --db NEW.db",
            crash=error,
        )
    return None


def salvage_hint(path: Path) -> str:
    """Return the hint how to save the readable part of a damaged history."""
    return (
        "Merge what can be read into a new history: kindlm history merge"
        f" {shlex.quote(shown_path(path))} --db NEW.db. Or restore it from a backup: delete"
        f" {path.name}-wal first."
    )


def repair_hint(problem: SchemaProblem, path: Path) -> str:
    """Return how to repair a table, view, index or trigger that is not as kindlm makes it."""
    again = "Compute it again from the events: kindlm history rebuild."
    return again if problem.projection is not None else salvage_hint(path)


def nothing_recorded(path: Path) -> KindlmError:
    """Return the error that a history does not exist, or is empty."""
    return not_there(
        "No runs are recorded yet.", "Record a run: kindlm test", where=SourceLocation(str(path))
    )


def disk_full(path: Path, error: BaseException | None) -> KindlmError | None:
    """Return the error to show if an operation failed because the disk of a history is full."""
    code = code_of(error)
    is_full = code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) == errno.ENOSPC
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        with suppress(OSError):
            is_full = shutil.disk_usage(path.parent).free < _NEEDED_BYTES
    if not is_full:
        return None
    return broken(
        "There is no space left on the disk of the history.",
        "Make room there and run it again; reading also needs some. Or copy the history to another"
        " disk, with its file -wal, and name the copy with --db.",
        where=SourceLocation(str(path)),
    )
