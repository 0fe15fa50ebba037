"""What `kindlm merge` does: histories of other machines, or shards, become part of this one.

Which is merged first makes no difference, and a second time changes nothing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from kindlm.cli.console import warn
from kindlm.cli.foreign_events import require_known_form
from kindlm.cli.history import fail_to_open
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation
from kindlm.history.sealing import PURGES, SEALED_HEADS
from kindlm.recording.secrets import secret_values
from kindlm.recording.session import open_log
from kindlm.wording import count
from kindlm_store import (
    CorruptDatabaseError,
    EmptyFileError,
    EventLog,
    LogSource,
    NewerDatabaseError,
    OpenError,
    Refusal,
    Taken,
    is_damaged,
    open_reader,
    salvage,
)

__all__ = ["Merged", "explained", "merge_histories", "withheld"]

Merged = tuple[Path, Taken]
"""A history, and what was taken of it."""


def merge_histories(files: Sequence[Path], database: Path) -> Result[list[Merged]]:
    """Merge histories into one, which is created if it is not there.

    All of them are opened before anything is taken. A history to merge into that cannot be opened
    ends the command.
    """
    with ExitStack() as opened:
        sources: list[tuple[Path, sqlite3.Connection | None]] = []
        for file in files:
            if file.exists() and database.exists() and file.samefile(database):
                return Err(_itself(file))
            try:
                sources.append((file, opened.enter_context(closing(open_reader(file)))))
            except EmptyFileError:
                sources.append((file, None))
            except OpenError as error:
                return Err(_unreadable(error))
        try:
            with open_log(database, secret_values(os.environ, ())) as log:
                merged = [
                    (file, Taken() if reader is None else _take(log, reader, file))
                    for file, reader in sources
                ]
            return Ok(merged)
        except OpenError as error:
            if error.path in files:
                return Err(_unreadable(error))
            fail_to_open(error)


def _take(log: EventLog, reader: sqlite3.Connection, file: Path) -> Taken:
    """Take a history; of one that is damaged, what can be read of it."""

    def taken_of(source: LogSource) -> Taken:
        with source:
            return log.take(source, accept=require_known_form, claims=SEALED_HEADS, erasures=PURGES)

    try:
        taken = taken_of(LogSource(reader, file))
    except CorruptDatabaseError as error:
        if error.path != file:
            raise
    else:
        if all(refusal.kind != "unsound" for refusal in taken.refused) or not is_damaged(reader):
            return taken
    warn(f"{file} is damaged: it is read row by row.")
    with closing(salvage(reader)) as copy:
        return taken_of(LogSource(copy, file, salvaged=True))


def explained(file: Path, refusal: Refusal) -> KindlmError:
    """Return the error that a stream could not be taken, in words for whoever merges."""
    name = refusal.stream.replace("/", " ", 1)
    hints = {
        "going on": "Merge it again when it has ended.",
        "apart": "It was copied, and resumed in both histories. Both stay as they are; to look at"
        f" the other one: kindlm show {refusal.stream.removeprefix('run/')} --db {file}",
        "unsound": "All that is not named here was merged. Check that history:"
        f" kindlm verify --db {file}",
    }
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"Nothing of {name} was merged: {refusal.reason}.",
        hints[refusal.kind],
        where=SourceLocation(str(file)),
    )


def withheld(texts: int, file: Path) -> tuple[str, str]:
    """Return the warning that texts came from nowhere, and what to do about it."""
    return (
        f"{count(texts, 'text')} that {file} refers to are not in it: reports show [withheld].",
        "A copy of the history that has them fills them in: kindlm merge COPY",
    )


def _itself(file: Path) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"{file} is the history that the others are merged into.",
        "Name the histories of other machines; --db names the one to merge into.",
    )


def _unreadable(error: OpenError) -> KindlmError:
    newer = isinstance(error, NewerDatabaseError)
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR if error.path.exists() else ErrorCode.CONFIG_NOT_FOUND,
        f"{error.path} can not be merged: it {error.reason}."
        if error.path.exists()
        else f"There is no file {error.path}.",
        "Update kindlm; a newer version recorded this history."
        if newer
        else "Name the file of a history, such as .kindlm/kindlm.db of another machine.",
    )
