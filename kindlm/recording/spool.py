"""The spool: a file that keeps the events which a history could not take.

It is JSON Lines: a header, then one event on each line, in order. `docs/unwritten-events.md`
describes it. Whatever it holds was made fit for the log before, secrets and personal data taken
out; but a file may come from anywhere, so that nothing in it is taken on trust when it is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO, Literal
from uuid import UUID

from pydantic import Field

from kindlm import __version__
from kindlm.recording.json_lines import (
    EventId,
    HashText,
    LineError,
    LineModel,
    StreamName,
    checked,
    numbered_lines,
    require_format,
)
from kindlm_store import Append, HeadOf, NewEvent, Text
from kindlm_store.events import is_timestamp

__all__ = ["FORMAT", "Spool", "SpooledEvent", "StreamEnd", "read_spool", "write_spool"]

FORMAT = "kindlm-unwritten-events"
VERSION = 1

_MOST_INTEGER = 2**63 - 1
"""What SQLite can hold in a column."""


class StreamEnd(LineModel):
    """Where a stream ended before its events in the spool; a stream without events has no hash."""

    version: Annotated[int, Field(ge=0)]
    hash: HashText | None

    @classmethod
    def nothing(cls) -> StreamEnd:
        """Return the end of a stream that has no event."""
        return cls(version=0, hash=None)


class _Header(LineModel):
    format: Literal["kindlm-unwritten-events"]
    version: Literal[1]
    kindlm: str
    events: Annotated[int, Field(ge=0)]
    streams: dict[StreamName, StreamEnd | None]


class _EventLine(LineModel):
    stream: StreamName
    type: Annotated[str, Field(min_length=1, max_length=200)]
    schema_: Annotated[int, Field(alias="schema", ge=1, le=1_000_000)]
    id: EventId
    at: str
    subject: Annotated[str, Field(min_length=1, max_length=1_000)] | None
    data: dict[str, Any]
    seal: bool = False


@dataclass(frozen=True, slots=True)
class SpooledEvent:
    """An event of a spool, the line it stands on, and whether it seals its stream."""

    line: int
    stream: str
    event: NewEvent
    seal: bool


@dataclass(frozen=True, slots=True)
class Spool:
    """What a spool holds.

    Attributes:
        ends: Where each stream ended before; None if the history could not be asked.
        events: The events, in order.
        missing: How many events the header announces that the file does not have.
    """

    ends: Mapping[str, StreamEnd | None]
    events: Sequence[SpooledEvent]
    missing: int


def write_spool(
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
    out.write(_line(header))
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
            out.write(_line(line))


def read_spool(file: BinaryIO) -> Spool:
    """Read a spool, which may end early: a program may have been killed while it wrote it.

    Raises:
        LineError: It is something else, or a line is not what it must be.
    """
    lines = numbered_lines(file, _parsed, may_end_early=True)
    number, first = next(lines, (1, None))
    if first is None:
        raise LineError(number, "is empty")
    require_format(first, FORMAT, VERSION, "unwritten events")
    header = checked(_Header, first, number)
    sealed: set[str] = set()
    events = []
    for number, line in lines:
        events.append(_event(number, line, header))
        if events[-1].stream in sealed:
            raise LineError(number, "follows the event that sealed its stream")
        if events[-1].seal:
            sealed.add(events[-1].stream)
    return Spool(header.streams, events, max(0, header.events - len(events)))


def _line(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_as_reference)
    return text.encode() + b"\n"


def _as_reference(value: object) -> object:
    match value:
        case Text(body):
            return {"$ref": {"text": body}}
        case HeadOf(stream):
            return {"$ref": {"headOf": stream}}
        case Mapping():
            return dict(value)
        case _:
            raise TypeError


def _parsed(raw: bytes) -> Any:
    return json.loads(
        raw.decode(),
        object_hook=_from_reference,
        parse_int=_integer,
        parse_float=_number,
        parse_constant=_number,
    )


def _from_reference(members: dict[str, Any]) -> Any:
    if "$ref" not in members:
        return members
    match members:
        case {"$ref": {"text": str(body), **rest}, **others} if not rest and not others:
            return Text(body)
        case {"$ref": {"headOf": str(stream), **rest}, **others} if not rest and not others:
            return HeadOf(stream)
    message = "$ref is neither a text nor the head of a stream"
    raise ValueError(message)


def _integer(digits: str) -> int:
    value = int(digits)
    if abs(value) > _MOST_INTEGER:
        message = "a number is too large"
        raise ValueError(message)
    return value


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        message = "a number is too large"
        raise ValueError(message)
    return value


def _event(number: int, value: Any, header: _Header) -> SpooledEvent:
    line = checked(_EventLine, value, number)
    if line.stream not in header.streams:
        raise LineError(number, f"is of the stream {line.stream!r}, which the header does not say")
    if not is_timestamp(line.at):
        raise LineError(number, "has no time in UTC, ISO 8601, with microseconds")
    event = NewEvent(line.type, line.data, line.schema_, line.subject, UUID(line.id), line.at)
    return SpooledEvent(number, line.stream, event, line.seal)
