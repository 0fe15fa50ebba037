"""Writes a recovery file: an export of the events that could not be written to the history.

`kindlm history import` takes it like any other export. Its events hold no secrets or hidden
personal data.
"""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from kindlm.errors import KindlmError, broken
from kindlm.events.codec import new_event
from kindlm.events.run import RunInterrupted
from kindlm_store import Append, EventLog, HeadOf, StoreError
from kindlm_store.append import Appender
from kindlm_store.canonical import stored_hash

COULD_NOT_BE_WRITTEN = "the history could not be written"
"""The recorded reason of an interruption whose events are in a recovery file."""

_HEADER_BYTES = 1_000_000
_NOT_A_HEADER = ValueError, RecursionError, LookupError, TypeError, AttributeError


def keep_unwritten(log: EventLog, run: str, shown: str) -> KindlmError:
    """Write the events that the log could not take into a recovery file; return the error.

    The file is beside the database, or in the folder for temporary files if the disk is full. The
    caller must hold back signals until then. `shown` is the database as the user names it.
    """
    # Few runs need this import.
    from kindlm_store.salvage import scratch_log

    appends = list(log.unwritten())
    if not any(append.seal and append.stream == f"run/{run}" for append in appends):
        interrupted = new_event(RunInterrupted(reason=COULD_NOT_BE_WRITTEN))
        appends.append(Append(f"run/{run}", (interrupted,)))
    lost = "lost: no file could be written"
    kept = None
    # In memory, since the disk may be full.
    with closing(scratch_log(":memory:")) as lacking:
        try:
            after = _append(lacking, log, appends)
            for folder in _folders(log.path):
                with suppress(OSError):
                    kept = _write(folder, run, lacking, after)
                    break
            lost += f" in {' or '.join(map(str, _folders(log.path)))}"
        except StoreError as error:
            lost += f", since the history cannot be read ({error})"
    lacks = sum(len(append.events) for append in appends)
    reason = getattr(log.failure, "__cause__", None) or log.failure
    where, then = lost, "and run it again."
    if kept is not None:
        where, then = f"in {kept}", f"then: {import_command(kept, shown)}"
    return broken(
        f"The history {shown} could no longer be written: {reason}. {lacks:,} events that it lacks"
        f" are {where}.",
        "Nothing new was started. Free disk space, move the file back, or see what is wrong (kindlm"
        f" history verify), {then}",
    )


def find_unwritten(database: Path, run: str, reader: sqlite3.Connection) -> Path | None:
    """Return a file with events of a run that its history still lacks, None if there is none."""
    stream = f"run/{run}"
    found = reader.execute("SELECT version FROM streams WHERE name = ?", (stream,)).fetchone()
    version = found[0] if found else 0
    for folder in _folders(database):
        for file in sorted(folder.glob(f"unwritten-{run}-*.jsonl")):
            # Other files may have such a name.
            with suppress(OSError, *_NOT_A_HEADER), file.open("rb") as opened:
                part = json.loads(opened.readline(_HEADER_BYTES))["streams"][stream]
                if part.get("after", 0) == version:
                    return file
    return None


def import_command(file: Path, database: str) -> str:
    """Return the command that imports a file of unwritten events into a history."""
    return f"kindlm history import {shlex.quote(str(file))} --db {shlex.quote(database)}"


def _append(
    lacking: sqlite3.Connection, log: EventLog, appends: Sequence[Append]
) -> dict[str, int]:
    """Append the unwritten events to an empty log; return the last known version of each stream.

    Raises `StoreError` if the history cannot be read any more.
    """
    gaps = (gap for append in appends for event in append.events for gap in event.gaps)
    noted = [gap.stream for gap in gaps if isinstance(gap, HeadOf)]
    after = {append.stream: 0 for append in appends}
    for name in {*after, *noted}:
        if (head := log.head(name)) is not None:
            lacking.execute(
                "INSERT INTO streams (name, version, head, sealed) VALUES (?, ?, ?, ?)",
                (name, head.version, stored_hash(head.hash), head.sealed),
            )
            after[name] = head.version
    # Of the known events, only the last hash is needed.
    lacking.execute(
        "INSERT INTO events (id, stream, version, type, schema, at, data, hash)"
        " SELECT randomblob(16), id, version, 0, 1, '', '{}', head FROM streams"
    )
    for refused in Appender(lacking).write([[append] for append in appends]):
        if refused is not None:
            raise refused
    return {append.stream: after[append.stream] for append in appends}


def _folders(database: Path) -> Iterator[Path]:
    yield database.absolute().parent
    # `gettempdir` raises if it finds no folder that accepts a file.
    with suppress(OSError):
        yield Path(tempfile.gettempdir())


def _write(folder: Path, run: str, lacking: sqlite3.Connection, after: Mapping[str, int]) -> Path:
    """Write a file that only the user may read, and wait until its content is on disk."""
    from kindlm.recording.export_file import write_export

    descriptor, name = tempfile.mkstemp(prefix=f"unwritten-{run}-", suffix=".part", dir=folder)
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as out:
            write_export(out, run, [*after], lacking, after=after)
            out.flush()
            os.fsync(out.fileno())
        return part.rename(part.with_suffix(".jsonl"))
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise
