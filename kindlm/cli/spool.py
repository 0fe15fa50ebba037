"""The spool: a file that keeps the events which a history could not take.

It is JSON Lines: a header, then one event on each line, in order. `docs/unwritten-events.md`
describes it. Whatever it holds was made fit for the log before, secrets and personal data taken
out; but a file may come from anywhere, so that nothing in it is taken on trust when it is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kindlm import __version__
from kindlm_store import Append, HeadOf, NewEvent, Text
from kindlm_store.events import is_timestamp

__all__ = ["Spool", "SpoolError", "SpooledEvent", "StreamEnd", "read_spool", "write_spool"]

FORMAT = "kindlm-unwritten-events"
VERSION = 1

_LONGEST_LINE = 256 * 1024 * 1024
"""Bytes; the largest text of an event is far below, however it is escaped."""

_MOST_INTEGER = 2**63 - 1
"""What SQLite can hold in a column."""

_ID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_STREAM = r"^(run|journal)/[0-9A-Za-z_.-]{1,100}$"
_HASH = r"^sha256:[0-9a-f]{64}$"

_Stream = Annotated[str, Field(pattern=_STREAM)]
_Line = TypeVar("_Line", bound=BaseModel)


class SpoolError(Exception):
    """A file is no spool, or a line of it is not what it must be.

    Attributes:
        line: Number of the line, from 1.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class StreamEnd(_Strict):
    """Where a stream ended before its events in the spool; a stream without events has no hash."""

    version: Annotated[int, Field(ge=0)]
    hash: Annotated[str, Field(pattern=_HASH)] | None

    @classmethod
    def nothing(cls) -> StreamEnd:
        """Return the end of a stream that has no event."""
        return cls(version=0, hash=None)


class _Header(_Strict):
    format: Literal["kindlm-unwritten-events"]
    version: Literal[1]
    kindlm: str
    events: Annotated[int, Field(ge=0)]
    streams: dict[_Stream, StreamEnd | None]


class _EventLine(_Strict):
    stream: _Stream
    type: Annotated[str, Field(min_length=1, max_length=200)]
    schema_: Annotated[int, Field(alias="schema", ge=1, le=1_000_000)]
    id: Annotated[str, Field(pattern=_ID)]
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
        SpoolError: It is something else, or a line is not what it must be.
    """
    lines = _lines(file)
    number, first = next(lines, (1, None))
    if first is None:
        raise SpoolError(number, "is empty")
    _require_format(first)
    header = _checked(_Header, first, number)
    sealed: set[str] = set()
    events = []
    for number, line in lines:
        events.append(_event(number, line, header))
        if events[-1].stream in sealed:
            raise SpoolError(number, "follows the event that sealed its stream")
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


def _lines(file: BinaryIO) -> Iterator[tuple[int, Any]]:
    """Yield numbered lines as JSON; one at the end that was not written whole is left out."""
    number = 0
    while raw := file.readline(_LONGEST_LINE + 1):
        number += 1
        if len(raw) > _LONGEST_LINE:
            raise SpoolError(number, f"is longer than {_LONGEST_LINE:,} bytes")
        whole = raw.endswith(b"\n")
        try:
            value = _parsed(raw)
        except (ValueError, RecursionError) as error:
            if not whole and number > 1:
                return
            raise SpoolError(number, f"is no JSON ({error})") from None
        yield number, value


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


def _require_format(header: object) -> None:
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise SpoolError(1, "does not say that this file holds unwritten events")
    if header.get("version") != VERSION:
        version = header.get("version")
        raise SpoolError(1, f"has version {version!r} of the format, this kindlm knows {VERSION}")


def _event(number: int, value: Any, header: _Header) -> SpooledEvent:
    line = _checked(_EventLine, value, number)
    if line.stream not in header.streams:
        raise SpoolError(number, f"is of the stream {line.stream!r}, which the header does not say")
    if not is_timestamp(line.at):
        raise SpoolError(number, "has no time in UTC, ISO 8601, with microseconds")
    event = NewEvent(line.type, line.data, line.schema_, line.subject, UUID(line.id), line.at)
    return SpooledEvent(number, line.stream, event, line.seal)


def _checked(model: type[_Line], value: Any, number: int) -> _Line:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise SpoolError(number, f"{place or 'the line'}: {first['msg']}") from None
