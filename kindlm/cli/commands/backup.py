"""`kindlm history backup`: copy a history while it is in use, and check the copy."""

from __future__ import annotations

import fcntl
import os
import secrets
import shlex
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from kindlm.cli.console import fail, note, refuse
from kindlm.cli.history import existing_history
from kindlm.cli.history_errors import salvage_hint
from kindlm.cli.options import DATABASE, argument
from kindlm.errors import ErrorCode, KindlmError, broken, misuse
from kindlm.events.run import PURGES, SEALED_HEADS
from kindlm.recording.history_file import UNFINISHED_BACKUP, files_of, remove_unfinished_backups
from kindlm.wording import count
from kindlm_store import OpenError, open_reader
from kindlm_store.database import code_of

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def backup_command(
    file: Path = argument("FILE", "A new file."), db: Path | None = DATABASE
) -> None:
    """Copy the history to a new file, and check the copy. Works while tests run."""
    from kindlm_store.verification import verify_file

    source = existing_history(db).database
    if file.is_dir():
        refuse(f"{file} is a folder.", "Name a new file in it.")
    if any(each.exists() for each in files_of(file)):
        fail([_is_there(file)])
    if not file.parent.is_dir():
        refuse(
            f"There is no folder {file.parent}.",
            f"Create it: mkdir -p {shlex.quote(str(file.parent))}",
        )
    # Renamed once it is complete and checked.
    part = file.with_name(f".{file.name}.{secrets.token_hex(4)}{UNFINISHED_BACKUP}")
    locked = None
    try:
        with closing(open_reader(source)) as reader:
            remove_unfinished_backups(file.parent)
            # Locked until it is complete, and only for its owner.
            flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
            locked = os.open(part, flags, 0o600)
            fcntl.flock(locked, fcntl.LOCK_EX)
            with closing(sqlite3.connect(part)) as target:
                reader.backup(target)  # one snapshot, which blocks no writer
        checked = verify_file(part, claims=SEALED_HEADS, erasures=PURGES)
        with closing(sqlite3.connect(part, isolation_level=None)) as copy:
            (sound,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        if not checked.ok or sound != "ok":
            fail([_unlike(sound if checked.ok else checked.problems[0].what, source)])
        if file.exists():
            fail([_is_there(file)])
        part.rename(file)
    except OpenError as error:
        if error.path == part:
            fail([_unlike(str(error.reason), source)])
        raise
    except (OSError, sqlite3.Error) as error:
        if code_of(error) in _DAMAGE:
            fail([_unlike(str(error), source)])
        refuse(
            f"The backup {file} cannot be written: {getattr(error, 'strerror', None) or error}.",
            "Free disk space, or name a file in another place.",
            code=ErrorCode.UNKNOWN_ERROR,
        )
    finally:
        if locked is not None:
            os.close(locked)
        for each in files_of(part):
            with suppress(OSError):
                each.unlink(missing_ok=True)
    note(f"{count(checked.events, 'event')} backed up to {file} and verified.")


def _is_there(file: Path) -> KindlmError:
    return misuse(
        f"{file} already exists, and a backup never overwrites a file.", "Name a new file."
    )


def _unlike(what: str, source: Path) -> KindlmError:
    return broken(
        f"No backup was made: the history differs from what was recorded: {what}.",
        f"See what is wrong: kindlm history verify. {salvage_hint(source)}",
    )
