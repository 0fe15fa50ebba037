"""The file of an export: streams as they are recorded, in JSON Lines, with the texts they refer to.

`docs/keeping-history.md` describes it. Every hash is in it, so that whoever reads it can tell that
nothing was changed since it was recorded; nothing else in it is taken on trust.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any, BinaryIO, Literal, NoReturn
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
    json_line,
    numbered_lines,
    require_format,
)
from kindlm.wording import count
from kindlm_store import Erasures, Source, StoredEvent, StoredStream, StoredText
from kindlm_store.canonical import SHA256_TAG, canonical_json, hash_text

__all__ = ["FORMAT", "ExportedStreams", "read_export", "write_export"]

FORMAT = "kindlm-events"
VERSION = 1

_PIECE = 500


class _StreamLine(LineModel):
    events: Annotated[int, Field(ge=1, le=2**62)]
    head: HashText
    sealed: bool


class _Header(LineModel):
    format: Literal["kindlm-events"]
    version: Literal[1]
    kindlm: str
    run: str
    streams: dict[StreamName, _StreamLine]


class _Text(LineModel):
    ref: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{32}$")]
    salt: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    body: str | None = None


class _Event(LineModel):
    stream: StreamName
    version: Annotated[int, Field(ge=1)]
    type: Annotated[str, Field(min_length=1, max_length=200)]
    schema_: Annotated[int, Field(alias="schema", ge=1, le=1_000_000)]
    id: EventId
    at: Annotated[str, Field(max_length=40)]
    subject: Annotated[str, Field(min_length=1, max_length=1_000)] | None
    data: dict[str, Any]
    hash: HashText


class _Line(LineModel):
    text: _Text | None = None
    event: _Event | None = None


class ExportedStreams:
    """The streams of an export, as a source that a log can take them from."""

    def __init__(self, streams: Sequence[StoredStream]) -> None:
        self._streams = streams
        self._events: dict[str, list[StoredEvent]] = {stream.name: [] for stream in streams}
        self._texts: dict[str, StoredText] = {}

    def add(self, event: StoredEvent, stream: str) -> None:
        """Add the next event of a stream."""
        self._events[stream].append(event)

    def add_text(self, text: StoredText) -> None:
        """Add a text."""
        self._texts[text.ref] = text

    def streams(self) -> Sequence[StoredStream]:
        """All streams, in the order of the file."""
        return self._streams

    def is_going_on(self, stream: str) -> bool:
        """Nobody writes a file."""
        del stream
        return False

    def hash_at(self, stream: str, version: int) -> bytes | None:
        """The tagged hash of an event; None if there is no such event."""
        events = self._events[stream]
        return events[version - 1].hash if version <= len(events) else None

    def events(self, stream: str, after: int) -> Iterator[StoredEvent]:
        """The events of a stream behind a version, in order."""
        yield from self._events[stream][after:]

    def texts(self, refs: Sequence[str]) -> Iterator[StoredText]:
        """The texts of some references."""
        yield from (self._texts[ref] for ref in refs if ref in self._texts)

    def erased(self, erasures: Erasures, streams: Collection[str]) -> frozenset[str]:
        """None: of a text that is not in it, a file does not say why."""
        del erasures, streams
        return frozenset()


def write_export(out: BinaryIO, run: str, streams: Sequence[str], source: Source) -> int:
    """Write streams of a log with all that they refer to; return the number of events."""
    wanted = {stream.name: stream for stream in source.streams() if stream.name in set(streams)}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "kindlm": __version__,
        "run": run,
        "streams": {
            name: {
                "events": wanted[name].version,
                "head": hash_text(wanted[name].head),
                "sealed": wanted[name].sealed,
            }
            for name in streams
        },
    }
    out.write(json_line(header))
    written: set[str] = set()
    for name in streams:
        piece: list[StoredEvent] = []
        for event in source.events(name, 0):
            piece.append(event)
            if len(piece) == _PIECE:
                _write_piece(out, name, piece, source, written)
                piece = []
        _write_piece(out, name, piece, source, written)
    return sum(stream.version for stream in wanted.values())


def read_export(file: BinaryIO) -> ExportedStreams:
    """Read an export; its hashes are checked when it is taken.

    Raises:
        LineError: It is something else, ends early, or a line is not what it must be.
    """
    lines = numbered_lines(file, _parsed, may_end_early=False)
    number, first = next(lines, (1, None))
    require_format(first, FORMAT, VERSION, "events of an export")
    header = checked(_Header, first, number)
    streams = ExportedStreams(
        [
            StoredStream(name, stream.events, _stored_hash(stream.head), stream.sealed)
            for name, stream in header.streams.items()
        ]
    )
    left = {name: stream.events for name, stream in header.streams.items()}
    for number, value in lines:
        line = checked(_Line, value, number)
        if line.event is not None and line.text is None:
            _add(streams, header, line.event, left, number)
        elif line.text is not None and line.event is None:
            streams.add_text(_stored_text(line.text, number))
        else:
            raise LineError(number, "is neither an event nor a text")
    if missing := sum(left.values()):
        are = "is" if missing == 1 else "are"
        raise LineError(number, f"is the last one, and {count(missing, 'event')} {are} missing")
    return streams


def _add(
    streams: ExportedStreams, header: _Header, event: _Event, left: dict[str, int], number: int
) -> None:
    if event.stream not in header.streams:
        raise LineError(number, f"is of {event.stream!r}, which the header does not name")
    next_version = header.streams[event.stream].events - left[event.stream] + 1
    if not left[event.stream] or event.version != next_version:
        raise LineError(number, f"is not the next event of {event.stream}")
    left[event.stream] -= 1
    try:
        data = canonical_json(event.data)
        data.encode()
    except (ValueError, RecursionError) as error:
        raise LineError(number, f"data: {error}") from None
    stored = StoredEvent(
        event.version, UUID(event.id).bytes, event.type, event.schema_, event.at, event.subject,
        data, _stored_hash(event.hash),
    )  # fmt: skip
    streams.add(stored, event.stream)


def _stored_text(text: _Text, number: int) -> StoredText:
    if (text.salt is None) is not (text.body is None):
        raise LineError(number, "text: salt and body are there together, or neither")
    salt = None if text.salt is None else bytes.fromhex(text.salt)
    return StoredText(text.ref, salt, text.body)


def _write_piece(
    out: BinaryIO, stream: str, piece: Sequence[StoredEvent], source: Source, written: set[str]
) -> None:
    """Write events, each text before the first event of the piece that refers to it."""
    parsed = [(event, json.loads(event.data)) for event in piece]
    refs = dict.fromkeys(ref for _, data in parsed for ref in _refs(data) if ref not in written)
    written.update(refs)
    for text in source.texts(list(refs)):
        shown = {}
        if text.salt is not None and text.body is not None:
            shown = {"salt": text.salt.hex(), "body": text.body}
        out.write(json_line({"text": {"ref": text.ref, **shown}}))
    for event, data in parsed:
        line = {
            "stream": stream,
            "version": event.version,
            "type": event.type,
            "schema": event.schema,
            "id": str(UUID(bytes=event.id)),
            "at": event.at,
            "subject": event.subject,
            "data": data,
            "hash": hash_text(event.hash),
        }
        out.write(json_line({"event": line}))


def _refs(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _refs(item)
    elif isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for member in value.values():
            yield from _refs(member)


def _parsed(raw: bytes) -> Any:
    return json.loads(raw.decode(), parse_constant=_no_constant)


def _no_constant(name: str) -> NoReturn:
    message = f"{name} is no number of JSON"
    raise ValueError(message)


def _stored_hash(shown: str) -> bytes:
    return SHA256_TAG + bytes.fromhex(shown.removeprefix("sha256:"))
