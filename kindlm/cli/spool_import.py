"""Importing a spool: its events are appended to the streams they are of.

A spool fits where its streams ended when it was written. Events of it that are recorded already
are left out, so that importing twice is harmless; everything else goes in as one transaction.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

from kindlm.cli.foreign_events import require_known_form
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.recording.json_lines import LineError
from kindlm.recording.secrets import secret_values
from kindlm.recording.session import open_log
from kindlm.recording.unwritten import StreamEnd, Unwritten, read_unwritten
from kindlm_store import (
    Append,
    ConflictError,
    EventLog,
    HeadOf,
    LockHeldError,
    RecordedEvent,
    StreamLock,
    Text,
    WriteFailedError,
)

__all__ = ["Imported", "import_spool"]


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


class _MisfitError(Exception):
    """The events of a stream do not follow what the history has of it."""


def import_spool(opened: BinaryIO, file: Path, database: Path) -> Result[Imported]:
    """Append the events of a spool to a history, all or none.

    Raises:
        LineError: The file is no spool.
        OpenError: The history cannot be opened.
    """
    spool = read_unwritten(opened)
    for line, append in enumerate(spool.appends, 2):
        _require_sound(line, append)
    with open_log(database, secret_values(os.environ, ())) as log:
        return _import(spool, file, log)


def _import(spool: Unwritten, file: Path, log: EventLog) -> Result[Imported]:
    """Append under the locks of the runs, so that none of them goes on meanwhile."""
    streams = dict.fromkeys(append.stream for append in spool.appends)
    try:
        with ExitStack() as locks:
            for stream in streams:
                locks.enter_context(StreamLock(log.path, stream))
            with closing(log.reader()) as reader:
                known = {name: _recorded(reader, name, spool) for name in streams}
            appends = list(_appends(spool, known))
            if appends:
                log.submit(*appends).result()
    except LockHeldError as error:
        return Err(_refused(file, f"{error}", "Wait until it has ended, then import again."))
    except (_MisfitError, ConflictError, ValueError) as error:
        return Err(_refused(file, str(error), _ANOTHER))
    except WriteFailedError as error:
        return Err(_refused(file, str(error), _MAKE_ROOM))
    except OSError as error:  # of a lock: the file has been read by now
        reason = f"the history {log.path} can not be written: {error.strerror or error}"
        return Err(_refused(file, reason, _MAKE_ROOM))
    present = sum(len(events) for events in known.values())
    runs = [name.removeprefix("run/") for name in streams if name.startswith("run/")]
    return Ok(Imported(len(spool.appends) - present, present, spool.missing, runs))


def _recorded(reader: sqlite3.Connection, stream: str, spool: Unwritten) -> set[str]:
    """Return the ids of those events of a stream that the history has already.

    Raises:
        _MisfitError: The rest would not follow the last event of the stream.
    """
    wanted = [str(a.events[0].id) for a in spool.appends if a.stream == stream]
    rows = reader.execute(
        "SELECT version, id, hash FROM event_log WHERE stream = ? ORDER BY version", (stream,)
    )
    there = {row["version"]: (row["id"], row["hash"]) for row in rows}
    end = spool.ends[stream]
    start = _start(there, wanted, end)
    if end is not None and start and there.get(start, ("", ""))[1] != end.hash:
        message = f"this history does not have the first {start:,} events of {stream}"
        raise _MisfitError(message)
    later = [there[version][0] for version in sorted(there) if version > start]
    both = min(len(later), len(wanted))
    if later[:both] != wanted[:both]:
        message = f"{stream} went on since then, with other events"
        raise _MisfitError(message)
    sealed = reader.execute("SELECT sealed FROM streams WHERE name = ?", (stream,)).fetchone()
    if sealed and sealed[0] and both < len(wanted):
        message = f"{stream} is sealed: nothing is appended to it any more"
        raise _MisfitError(message)
    return set(later[:both])


def _start(
    there: Mapping[int, tuple[str, str]], wanted: Sequence[str], end: StreamEnd | None
) -> int:
    """Return the version that a stream had before the first event of the spool."""
    if end is not None:
        return end.version
    versions = {id_: version for version, (id_, _) in there.items()}
    return versions.get(wanted[0], len(there) + 1) - 1


def _appends(spool: Unwritten, known: Mapping[str, set[str]]) -> Iterator[Append]:
    rest = [a for a in spool.appends if str(a.events[0].id) not in known[a.stream]]
    for stream, group in groupby(rest, key=lambda append: append.stream):
        appends = list(group)
        yield Append(stream, [a.events[0] for a in appends], seal=appends[-1].seal)


def _require_sound(line: int, append: Append) -> None:
    """Refuse what the read models could not be folded from: it would be in the log for good."""
    (event,) = append.events
    # As it will be read, with stand-ins for what only the log can say.
    read = RecordedEvent(
        0, event.id, append.stream, 0, event.type, event.schema, event.at, event.subject,
        _filled(event.data), "",
    )  # fmt: skip
    try:
        require_known_form(read)
    except ValueError as error:
        raise LineError(line, str(error)) from None


def _filled(value: Any) -> Any:
    match value:
        case Text():
            return {"$ref": "text"}
        case HeadOf():
            return "sha256:"
        case Mapping():
            return {name: _filled(member) for name, member in value.items()}
        case list():
            return [_filled(item) for item in value]
        case _:
            return value


_MAKE_ROOM = "Make room on the disk, then import again."

_ANOTHER = (
    "Import it into the history that the run was recorded in (--db), before the run is resumed."
)


def _refused(file: Path, reason: str, hint: str) -> KindlmError:
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR, f"The events of {file} were not imported: {reason}.", hint
    )
