"""Importing a recovery file: its events are appended to the streams they are of.

Such a file fits where its streams ended when it was written. Events of it that are recorded
already are left out, so that importing twice is harmless; all others are one transaction.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kindlm.cli.foreign_events import require_known_form
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.recording.event_files import LineError, Unwritten, read_unwritten
from kindlm.recording.log import open_log
from kindlm.recording.secrets import secret_values
from kindlm_store import (
    ConflictError,
    EventLog,
    LockHeldError,
    RecordedEvent,
    StreamLock,
    WriteFailedError,
)

_MAKE_ROOM = "Make room on the disk, then import again."

_ANOTHER = (
    "Import it into the history that the run was recorded in (--db), before the run is resumed."
)


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of a file of events.

    Attributes:
        added: Events that are in the history now and were not before.
        known: Events that were there already.
        missing: Events that the file should have and does not, since it ends early.
        runs: The runs that the events are of.
        warnings: What the file says that could not be carried over.
        withheld: Texts that are neither in the file nor in the history.
        filled: Texts that were withheld, and are there now.
    """

    added: int
    known: int
    missing: int
    runs: Sequence[str]
    warnings: Sequence[str] = ()
    withheld: int = 0
    filled: int = 0


def import_unwritten(opened: BinaryIO, file: Path, database: Path) -> Result[Imported]:
    """Append the events of a recovery file to a history, all or none.

    Raises:
        LineError: The file is something else, or holds what the tables could not be folded from.
        OpenError: The history cannot be opened.
    """
    unwritten = read_unwritten(opened)
    for line, append in enumerate(unwritten.appends, 2):
        (event,) = append.events
        # As it will be read, but for what only the log can say.
        read = RecordedEvent(
            0, event.id, append.stream, 0, event.type, event.schema, event.at, event.subject,
            event.data, "",
        )  # fmt: skip
        try:
            require_known_form(read)
        except ValueError as error:
            raise LineError(line, str(error)) from None
    with open_log(database, secret_values(os.environ, ())) as log:
        return _import(unwritten, file, log)


def _import(unwritten: Unwritten, file: Path, log: EventLog) -> Result[Imported]:
    """Append under the locks of the runs, so that none of them goes on meanwhile."""
    streams = dict.fromkeys(append.stream for append in unwritten.appends)
    try:
        with ExitStack() as locks:
            for stream in streams:
                locks.enter_context(StreamLock(log.path, stream))
            with closing(log.reader()) as reader:
                known = set[tuple[str, str]]().union(
                    *(_recorded(reader, stream, unwritten) for stream in streams)
                )
            new = [a for a in unwritten.appends if (a.stream, str(a.events[0].id)) not in known]
            if new:
                log.submit(*new).result()
    except LockHeldError as error:
        return Err(_refused(file, f"{error}", "Wait until it has ended, then import again."))
    except (ConflictError, ValueError) as error:
        return Err(_refused(file, str(error), _ANOTHER))
    except WriteFailedError as error:
        return Err(_refused(file, str(error), _MAKE_ROOM))
    except OSError as error:  # of a lock: the file has been read by now
        reason = f"the history {log.path} can not be written: {error.strerror or error}"
        return Err(_refused(file, reason, _MAKE_ROOM))
    runs = [name.removeprefix("run/") for name in streams if name.startswith("run/")]
    return Ok(Imported(len(new), len(known), unwritten.missing, runs))


def _recorded(
    reader: sqlite3.Connection, stream: str, unwritten: Unwritten
) -> set[tuple[str, str]]:
    """Return those events of a stream that the history has already, by stream and id.

    Raises:
        ValueError: The rest would not follow the last event of the stream.
    """
    wanted = [str(each.events[0].id) for each in unwritten.appends if each.stream == stream]
    rows = reader.execute(
        "SELECT id, hash FROM event_log WHERE stream = ? ORDER BY version", (stream,)
    ).fetchall()
    there = [row["id"] for row in rows]
    end = unwritten.ends[stream]
    if end is None:
        start = there.index(wanted[0]) if wanted[0] in there else len(there)
    else:
        start = end.version
        if start and [row["hash"] for row in rows[start - 1 : start]] != [end.hash]:
            message = f"this history does not have the first {start:,} events of {stream}"
            raise ValueError(message)
    later = there[start:]
    if any(known != new for known, new in zip(later, wanted, strict=False)):
        message = f"{stream} went on since then, with other events"
        raise ValueError(message)
    return {(stream, known) for known in later[: len(wanted)]}


def _refused(file: Path, reason: str, hint: str) -> KindlmError:
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR, f"The events of {file} were not imported: {reason}.", hint
    )
