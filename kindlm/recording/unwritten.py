"""What a run does when its history takes no more events: they are kept in a file beside it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kindlm.errors import ErrorCode, KindlmError
from kindlm.events import RunInterrupted, new_event
from kindlm.recording.spool import StreamEnd, write_spool
from kindlm_store import Append, EventLog, ForeignSchemaError, StoreError

__all__ = ["COULD_NOT_BE_WRITTEN", "find_unwritten", "import_command", "keep_unwritten"]

COULD_NOT_BE_WRITTEN = "the history could not be written"
"""Why a run was interrupted whose events are kept in a file."""

_HEADER_BYTES = 1_000_000

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def keep_unwritten(
    log: EventLog, run: str, shown: str, tell: Callable[[KindlmError], None]
) -> None:
    """Write the events that the log could not take into a file, and tell the user which.

    Beside the database, or where temporary files go if there is no room. A signal waits until the
    user was told; a second one ends it, and the file has whole lines up to there.

    Args:
        log: A log that has failed.
        run: The run that was recorded.
        shown: The database as the user would name it.
        tell: Shows an error.
    """
    appends = _with_end(log.unwritten(), run)
    ended = _ended(appends)
    count = sum(len(append.events) for append in appends)
    with _signals_wait():
        ends = {append.stream: _end(log, append.stream) for append in appends}
        refused: list[str] = []
        for folder in _folders(log.path):
            try:
                file = _write(folder, run, appends, ends)
            except OSError as error:
                refused.append(f"{folder} ({error.strerror or error})")
            else:
                tell(_kept(log, f"{count:,} events{ended}", file, shown))
                return
        tell(_lost(log, f"{count:,} events{ended}", refused, shown))


def find_unwritten(database: Path, run: str, reader: sqlite3.Connection) -> Path | None:
    """Return a file with events of a run that its history still lacks, None if there is none."""
    stream = f"run/{run}"
    row = reader.execute(
        "SELECT max(version) FROM event_log WHERE stream = ?", (stream,)
    ).fetchone()
    for folder in _folders(database):
        for file in sorted(folder.glob(f"unwritten-{run}-*.jsonl")):
            if _ended_at(file, stream) == (row[0] or 0):
                return file
    return None


def _ended_at(file: Path, stream: str) -> int | None:
    """Return the version that a stream had when the file was written; None if it does not say."""
    try:
        with file.open("rb") as opened:
            end = json.loads(opened.readline(_HEADER_BYTES))["streams"][stream]
        return int(end["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def import_command(file: Path, database: str) -> str:
    """Return the command that brings a file of unwritten events into a history."""
    return f"kindlm import {shlex.quote(str(file))} --db {shlex.quote(database)}"


def _with_end(appends: Sequence[Append], run: str) -> list[Append]:
    """Add that the run was interrupted, unless it had come to its end."""
    stream = f"run/{run}"
    if any(append.seal for append in appends if append.stream == stream):
        return list(appends)
    interrupted = RunInterrupted(reason=COULD_NOT_BE_WRITTEN)
    return [*appends, Append(stream, (new_event(interrupted),))]


def _ended(appends: Sequence[Append]) -> str:
    """Say how the executions came out whose end is not in the history."""
    statuses = Counter(
        event.data["status"]
        for append in appends
        for event in append.events
        if event.type == "execution.finished"
    )
    listed = ", ".join(f"{count:,} {status}" for status, count in sorted(statuses.items()))
    return f" (executions that ended: {listed})" if listed else ""


def _end(log: EventLog, stream: str) -> StreamEnd | None:
    """Return where a stream ends in the file; None if the file cannot be read either."""
    try:
        head = log.head(stream)
    except (sqlite3.Error, StoreError):
        return None
    return StreamEnd(version=head.version, hash=head.hash) if head else StreamEnd.nothing()


def _folders(database: Path) -> Iterator[Path]:
    yield database.absolute().parent
    # None of the usual folders may take a file: that is an error of its own.
    with suppress(OSError):
        yield Path(tempfile.gettempdir())


def _write(
    folder: Path, run: str, appends: Sequence[Append], ends: dict[str, StreamEnd | None]
) -> Path:
    """Write a file that nobody else may read, and wait for the disk."""
    descriptor, name = tempfile.mkstemp(prefix=f"unwritten-{run}-", suffix=".jsonl", dir=folder)
    file = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as out:
            write_spool(out, appends, ends)
            out.flush()
            os.fsync(out.fileno())
        _sync_folder(folder)
    except OSError:
        with suppress(OSError):
            file.unlink()
        raise
    return file


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Let the first signal wait until the end of the block; a second one raises at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []

    def remember(number: int, frame: object) -> None:
        del frame
        if waiting:
            raise KeyboardInterrupt
        waiting.append(number)

    before = {
        number: signal.signal(number, remember)
        for number in _SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if waiting:
        signal.raise_signal(waiting[0])


def _kept(log: EventLog, events: str, file: Path, shown: str) -> KindlmError:
    command = import_command(file, shown)
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"{_failed(log, shown)} What it does not have, {events}, is in {file}.",
        f"Nothing new was started. {_mended(log)}, then: {command}",
    )


def _lost(log: EventLog, events: str, refused: Sequence[str], shown: str) -> KindlmError:
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"{_failed(log, shown)} What it does not have, {events}, is lost:"
        f" no file could be written in {' or '.join(refused)}.",
        f"Nothing new was started. {_mended(log)}, and run it again.",
    )


def _mended(log: EventLog) -> str:
    """Say what to do about the reason for which a history takes no more events."""
    reason = getattr(log.failure, "__cause__", None)
    if getattr(reason, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT:
        return "Merge what can be read of it into a new history (kindlm merge DAMAGED --db NEW)"
    if isinstance(reason, ForeignSchemaError):
        return "See what is foreign in it and remove that (kindlm verify)"
    return "Make room on the disk"


def _failed(log: EventLog, shown: str) -> str:
    reason = getattr(log.failure, "__cause__", None) or log.failure
    return f"The history {shown} could not be written any more: {reason}."
