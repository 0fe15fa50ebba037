"""Files of events in JSON Lines: exports, and the file for events that a history could not take.

A file may come from anywhere, so nothing in it is taken on trust when it is read.
`docs/how-to/unwritten-events.md` describes the second kind: a header, then one event on each line,
in order. What kindlm writes there has lost its secrets and personal data already.
"""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kindlm import __version__
from kindlm.dataclass import dataclass
from kindlm.errors import KindlmError, broken
from kindlm.events.codec import new_event
from kindlm.events.run import RunInterrupted
from kindlm.strict_json import NotJsonError, explained
from kindlm_store import Append, EventLog, ForeignSchemaError, HeadOf, NewEvent, StoreError, Text

_LONGEST_LINE = 256 * 1024 * 1024
"""Bytes; the largest text of an event is far below, however it is escaped."""

STREAM_NAME = r"(run|journal)/[0-9A-Za-z_.-]{1,100}"
StreamName = Annotated[str, Field(pattern=f"^{STREAM_NAME}$")]
HashText = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]

_Line = TypeVar("_Line", bound=BaseModel)


class LineError(Exception):
    """A line of a file is not what it must be.

    Attributes:
        line: Number of the line, from 1.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class LineModel(BaseModel):
    """What all lines have in common: nothing is converted, and nothing may be there besides."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def json_line(value: Mapping[str, Any], default: Callable[[Any], Any] | None = None) -> bytes:
    """Return a value as a line; `default` says what stands for what JSON does not know."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=default)
    return text.encode() + b"\n"


def numbered_lines(
    file: BinaryIO,
    *,
    may_end_early: bool,
    object_hook: Callable[[dict[str, Any]], Any] | None = None,
) -> Iterator[tuple[int, Any]]:
    """Yield numbered lines as the values that they are in JSON.

    With `may_end_early`, a last line that was not written whole is left out. Raises `LineError`.
    """
    number = 0
    while raw := file.readline(_LONGEST_LINE + 1):
        number += 1
        if len(raw) > _LONGEST_LINE:
            raise LineError(number, f"is longer than {_LONGEST_LINE:,} bytes")
        try:
            value = json.loads(raw.decode(), object_hook=object_hook)
        except (ValueError, RecursionError) as error:
            if may_end_early and number > 1 and not raw.endswith(b"\n"):
                return
            raise LineError(number, f"is not valid JSON: {_what_is_wrong(error)}") from None
        yield number, value


def _what_is_wrong(error: RecursionError | ValueError) -> str:
    """Return what is wrong with a line of JSON, without a place: the line is named already."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    reason = explained(error)
    return reason.what if isinstance(reason, NotJsonError) else str(reason)


def require_format(header: object, name: str, version: int, what: str) -> None:
    """Raise `LineError` if the first line does not say that the file is of a format."""
    if not isinstance(header, dict) or header.get("format") != name:
        raise LineError(1, f"does not say that this file holds {what}")
    if (found := header.get("version")) != version:
        raise LineError(1, f"has version {found!r} of the format, this kindlm knows {version}")


def checked(model: type[_Line], value: Any, number: int) -> _Line:
    """Return a line as its model; raise `LineError` if it does not fit."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise LineError(number, f"{place or 'the line'}: {first['msg']}") from None


FORMAT = "kindlm-unwritten-events"
VERSION = 1

COULD_NOT_BE_WRITTEN = "the history could not be written"
"""Why a run was interrupted whose events are kept in a file."""

_HEADER_BYTES = 1_000_000


class StreamEnd(LineModel):
    """Where a stream ended in the history; one without events is at version 0 and has no hash."""

    version: Annotated[int, Field(ge=0)] = 0
    hash: HashText | None = None


class _Header(LineModel):
    format: Literal["kindlm-unwritten-events"]
    version: Literal[1]
    kindlm: str
    events: Annotated[int, Field(ge=0)]
    streams: dict[StreamName, StreamEnd | None]


class EventLine(LineModel):
    """An event, as both kinds of files have it."""

    stream: StreamName
    type: Annotated[str, Field(min_length=1, max_length=200)]
    schema_: Annotated[int, Field(alias="schema", ge=1, le=1_000_000)]
    id: Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    at: Annotated[str, Field(max_length=40)]
    subject: Annotated[str, Field(min_length=1, max_length=1_000)] | None
    data: dict[str, Any]


class _UnwrittenLine(EventLine):
    seal: bool = False


@dataclass(frozen=True, slots=True)
class Unwritten:
    """What such a file holds.

    Attributes:
        ends: Where each stream ended before; None if the history could not be read.
        appends: One event each, in order; the first is on line 2 of the file.
        missing: How many events the header announces that the file does not have.
    """

    ends: Mapping[str, StreamEnd | None]
    appends: Sequence[Append]
    missing: int


def keep_unwritten(
    log: EventLog, run: str, shown: str, tell: Callable[[KindlmError], None]
) -> None:
    """Write the events that the log could not take into a file, and report where it is.

    Beside the database, or where temporary files go if there is no room. The caller sees to it that
    a signal waits until the user has seen it.

    Args:
        log: A log that has failed.
        run: The run that was recorded.
        shown: The database as the user would name it.
        tell: Shows an error.
    """
    appends = list(log.unwritten())
    if not any(append.seal and append.stream == f"run/{run}" for append in appends):
        interrupted = new_event(RunInterrupted(reason=COULD_NOT_BE_WRITTEN))
        appends.append(Append(f"run/{run}", (interrupted,)))
    ends = {append.stream: _end(log, append.stream) for append in appends}
    kept, refused = None, list[str]()
    for folder in _folders(log.path):
        try:
            kept = _write(folder, run, appends, ends)
            break
        except OSError as error:
            refused.append(f"{folder} ({error.strerror or error})")
    tell(_failed(log, appends, kept, refused, shown))


def find_unwritten(database: Path, run: str, reader: sqlite3.Connection) -> Path | None:
    """Return a file with events of a run that its history still lacks, None if there is none."""
    stream = f"run/{run}"
    (version,) = reader.execute(
        "SELECT coalesce(max(version), 0) FROM event_log WHERE stream = ?", (stream,)
    ).fetchone()
    for folder in _folders(database):
        for file in sorted(folder.glob(f"unwritten-{run}-*.jsonl")):
            with suppress(OSError, ValueError, KeyError, TypeError), file.open("rb") as opened:
                end = json.loads(opened.readline(_HEADER_BYTES))["streams"][stream]
                if int(end["version"]) == version:
                    return file
    return None


def import_command(file: Path, database: str) -> str:
    """Return the command that brings a file of unwritten events into a history."""
    return f"kindlm history import {shlex.quote(str(file))} --db {shlex.quote(database)}"


def write_unwritten(
    out: BinaryIO, appends: Sequence[Append], ends: Mapping[str, StreamEnd | None]
) -> None:
    """Write appends, in order; `ends` says of each of their streams where it ended before."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "kindlm": __version__,
        "events": sum(len(append.events) for append in appends),
        "streams": {name: end and end.model_dump() for name, end in ends.items()},
    }
    out.write(json_line(header))
    for append in appends:
        for event in append.events:
            line = {
                "stream": append.stream,
                "type": event.type,
                "schema": event.schema,
                "id": str(event.id),
                "at": event.at,
                "subject": event.subject,
                "data": event.data,
            }
            if append.seal and event is append.events[-1]:
                line["seal"] = True
            out.write(json_line(line, default=_as_reference))


def read_unwritten(file: BinaryIO) -> Unwritten:
    """Read such a file, which may end early: a program may have been killed while it wrote it.

    Raises:
        LineError: It is something else, or a line is not what it must be.
    """
    lines = numbered_lines(file, may_end_early=True, object_hook=_from_reference)
    number, first = next(lines, (1, None))
    if first is None:
        raise LineError(number, "is empty")
    require_format(first, FORMAT, VERSION, "unwritten events")
    header = checked(_Header, first, number)
    appends = []
    for number, value in lines:
        line = checked(_UnwrittenLine, value, number)
        if line.stream not in header.streams:
            raise LineError(
                number, f"is of the stream {line.stream!r}, which the header does not say"
            )
        try:
            event = NewEvent(
                line.type, line.data, line.schema_, line.subject, UUID(line.id), line.at
            )
        except ValueError as error:
            raise LineError(number, str(error)) from None
        appends.append(Append(line.stream, (event,), seal=line.seal))
    return Unwritten(header.streams, appends, max(0, header.events - len(appends)))


def _end(log: EventLog, stream: str) -> StreamEnd | None:
    """Return where a stream ends in the history; None if that cannot be read either."""
    try:
        head = log.head(stream)
    except (sqlite3.Error, StoreError):
        return None
    return StreamEnd(version=head.version, hash=head.hash) if head else StreamEnd()


def _folders(database: Path) -> Iterator[Path]:
    yield database.absolute().parent
    # None of the usual folders may take a file: that is an error of its own.
    with suppress(OSError):
        yield Path(tempfile.gettempdir())


def _write(
    folder: Path, run: str, appends: Sequence[Append], ends: Mapping[str, StreamEnd | None]
) -> Path:
    """Write a file that only the user may read, and wait until it is on disk with its name."""
    descriptor, name = tempfile.mkstemp(prefix=f"unwritten-{run}-", suffix=".jsonl", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as out:
            write_unwritten(out, appends, ends)
            out.flush()
            os.fsync(out.fileno())
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        with suppress(OSError):
            Path(name).unlink()
        raise
    return Path(name)


def _failed(
    log: EventLog, appends: Sequence[Append], kept: Path | None, refused: Sequence[str], shown: str
) -> KindlmError:
    """Return what to say of a history that takes no more events, and what to do about it."""
    reason = getattr(log.failure, "__cause__", None) or log.failure
    way_out = "Free disk space"
    if getattr(reason, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT:
        way_out = (
            "Merge what can be read into a new history (kindlm history merge DAMAGED --db NEW)"
        )
    elif isinstance(reason, ForeignSchemaError):
        way_out = "See what is foreign in it and remove that (kindlm history verify)"
    events = [event for append in appends for event in append.events]
    ended = Counter(e.data["status"] for e in events if e.type == "execution.finished")
    statuses = ", ".join(f"{count:,} {status}" for status, count in sorted(ended.items()))
    lacking = f"{len(events):,} events"
    if statuses:
        lacking += f" (executions that ended: {statuses})"
    if kept is not None:
        became, then = f"is in {kept}", f"then: {import_command(kept, shown)}"
    else:
        became = f"is lost: no file could be written in {' or '.join(refused)}"
        then = "and run it again."
    return broken(
        f"The history {shown} could no longer be written: {reason}."
        f" What it does not have, {lacking}, {became}.",
        f"Nothing new was started. {way_out}, {then}",
    )


def _as_reference(value: object) -> object:
    if isinstance(value, Text):
        return {"$ref": {"text": value.body}}
    assert isinstance(value, HeadOf)
    return {"$ref": {"headOf": value.stream}}


def _from_reference(members: dict[str, Any]) -> Any:
    match members:
        case {"$ref": {"text": str(body), **rest}, **others} if not rest and not others:
            return Text(body)
        case {"$ref": {"headOf": str(stream), **rest}, **others} if not rest and not others:
            return HeadOf(stream)
        case {"$ref": _}:
            message = "$ref is neither a text nor the head of a stream"
            raise ValueError(message)
    return members
