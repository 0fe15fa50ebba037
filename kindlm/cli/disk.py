"""Whether a disk is full: SQLite says only that it could not read or write there."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from kindlm.errors import ErrorCode, KindlmError, SourceLocation

_NEEDED = 128 * 1024
"""Bytes: with less, SQLite can not make the index of its write-ahead log, which readers need."""

_FOR_WANT_OF_SPACE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}


def disk_full(path: Path, error: BaseException | None) -> KindlmError | None:
    """Return the error to show if a history could not be used since its disk is full."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        full = code == sqlite3.SQLITE_FULL or (code in _FOR_WANT_OF_SPACE and _has_no_room(path))
    else:
        full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    if not full:
        return None
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        "There is no space left on the disk of the history.",
        "Make room there and run it again; to read takes a little room, too. Or copy it to another"
        " disk, with the file -wal beside it, and name the copy with --db.",
        where=SourceLocation(str(path)),
    )


def _has_no_room(path: Path) -> bool:
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _NEEDED
