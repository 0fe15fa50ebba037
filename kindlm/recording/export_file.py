"""Reads and writes export files: recorded streams and their texts, in JSON Lines.

`docs/how-to/keeping-history.md` describes the format. A file contains every hash, so that a reader
can check that nothing was changed. `events.require_known_form` checks events before they enter the
log.

A file may contain only the later events of a stream, such as those that did not fit on a full disk.
Its header then has the hash of the event before them, and only a log with that event takes them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, BinaryIO, NamedTuple
from uuid import UUID

from kindlm import __version__
from kindlm_store import RecordedEvent
from kindlm_store.append import WITHHELD
from kindlm_store.canonical import canonical_json, hash_text, stored_hash
from kindlm_store.erasing import refs_in
from kindlm_store.merging import Begin
from kindlm_store.reading import events_after, hash_at, stored_texts
from kindlm_store.salvage import scratch_log

FORMAT = "kindlm-events"
VERSION = 1

_PIECE = 500

_HEADER = {"format": str, "version": int, "kindlm": str, "run": str, "streams": dict}
_STREAM = {"events": int, "head": str, "sealed": bool}
_EVENT = {
    "stream": str, "version": int, "type": str, "schema": int, "id": str, "at": str,
    "subject": str | None, "data": dict, "hash": str,
}  # fmt: skip


class LineError(Exception):
    """A line of a file is invalid; `line` is its number, from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class Part(NamedTuple):
    """The events of a stream in a file: those after version `after`, up to `until`."""

    stream: str
    after: int
    until: int


class Export(NamedTuple):
    """A file as a log, whose positions are line numbers, and the beginnings of partial streams."""

    log: sqlite3.Connection
    begins: Mapping[str, Begin]


def write_export(
    out: BinaryIO,
    run: str,
    streams: Sequence[str],
    log: sqlite3.Connection,
    *,
    after: Mapping[str, int] | None = None,
) -> int:
    """Write streams of a log with all texts that they refer to; return the number of events.

    Of a stream in `after`, only the events after that version are written.
    """
    ends = dict(log.execute("SELECT name, version FROM streams").fetchall())
    parts = [Part(name, (after or {}).get(name, 0), ends[name]) for name in streams]
    out.write(header_line(run, parts, log))
    written: set[str] = set()
    for name, begin, _ in parts:
        version = begin
        while piece := events_after(log, name, version, _PIECE):
            refs = [ref for ref in refs_in(event.json for event in piece) if ref not in written]
            written.update(refs)
            out.writelines(text_lines(log, refs))
            out.writelines(map(event_line, piece))
            version = piece[-1].version
    return sum(part.until - part.after for part in parts)


def header_line(run: str, parts: Iterable[Part], log: sqlite3.Connection) -> bytes:
    """Return the first line of a file that holds parts of streams of a log."""
    streams = {}
    for name, after, until in parts:
        version, sealed = log.execute(
            "SELECT version, sealed FROM streams WHERE name = ?", (name,)
        ).fetchone()
        streams[name] = {
            "events": until,
            "head": _shown_hash(log, name, until),
            "sealed": bool(sealed) and until == version,
        }
        if after:
            streams[name] |= {"after": after, "base": _shown_hash(log, name, after)}
    header = {"format": FORMAT, "version": VERSION, "kindlm": __version__, "run": run}
    return _json_line({**header, "streams": streams})


def text_lines(
    log: sqlite3.Connection, refs: Iterable[str], withhold: Callable[[str], bool] | None = None
) -> Iterator[bytes]:
    """Yield the lines of texts, by reference; `withhold` says of which the body is left out."""
    for ref, salt, _, body in stored_texts(log, refs):
        is_there = salt is not None and body is not None and not (withhold and withhold(body))
        shown = {"salt": salt.hex(), "body": body} if is_there else {}
        yield _json_line({"text": {"ref": ref, **shown}})


def event_line(event: RecordedEvent) -> bytes:
    """Return the line of an event."""
    line = {member: getattr(event, member) for member in _EVENT}
    return _json_line({"event": line | {"id": str(event.id)}})


def _json_line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _shown_hash(log: sqlite3.Connection, stream: str, version: int) -> str:
    found = hash_at(log, stream, version)
    assert found is not None
    return hash_text(found)


@contextmanager
def read_export(file: BinaryIO) -> Iterator[Export]:
    """Read a file into a temporary log; its hashes are checked when it is merged.

    Raises `LineError` if it is not an export, ends early, or has an invalid line.
    """
    lines = _numbered_lines(file)
    number, first = next(lines, (1, None))
    if not isinstance(first, dict) or first.get("format") != FORMAT:
        raise LineError(1, "does not say that this file holds events of an export")
    if (found := first.get("version")) != VERSION:
        raise LineError(1, f"has version {found!r} of the format, this kindlm knows {VERSION}")
    begins: dict[str, Begin] = {}
    following: dict[str, int] = {}  # the version of the next event of each stream
    ends: dict[str, int] = {}  # the version of its last event
    with closing(scratch_log()) as log:
        log.execute("BEGIN")
        try:
            for name, value in _in_form(first, _HEADER)["streams"].items():
                stream = _in_form(value, _STREAM, after=int, base=str)
                ends[name], head = stream["events"], stored_hash(stream["head"])
                if "base" in stream:
                    begins[name] = (stream["after"], stored_hash(stream["base"]))
                following[name] = stream.get("after", 0) + 1
                log.execute(
                    "INSERT INTO streams (name, version, head, sealed) VALUES (?, ?, ?, ?)",
                    (name, ends[name], head, stream["sealed"]),
                )
            for number, value in lines:
                match value:
                    case {"event": event, **others} if not others:
                        _in_form(event, _EVENT)
                        name, version = event["stream"], event["version"]
                        # A stream that the header does not name has no next event.
                        if version != following.get(name) or version > ends[name]:
                            raise LineError(number, f"is not the next event of {name}")
                        following[name] += 1
                        _add_event(log, event, number)
                    case {"text": text, **others} if not others:
                        _add_text(log, _in_form(text, {"ref": str}, salt=str, body=str), number)
                    case _:
                        raise LineError(number, "is neither an event nor a text")
        except (ValueError, OverflowError, RecursionError):
            raise LineError(number, "is not as kindlm writes it") from None
        for name, version in following.items():
            if version - 1 != (end := ends[name]):
                what = f"is the last one, and {name} reaches event {version - 1}, not {end}"
                raise LineError(number, what)
        log.execute("COMMIT")
        yield Export(log, begins)


def _numbered_lines(file: BinaryIO) -> Iterator[tuple[int, Any]]:
    for number, raw in enumerate(file, 1):
        try:
            value = json.loads(raw.decode())
        except (ValueError, RecursionError):
            raise LineError(number, "is not valid JSON") from None
        yield number, value


def _in_form(value: Any, form: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a JSON object whose members have the types of a form, with all or none of `more`.

    Raises `ValueError` for any other value.
    """
    members: dict[str, Any] = value if isinstance(value, dict) else {}
    wanted = form if more.keys().isdisjoint(members) else form | more
    if members.keys() != wanted.keys():
        raise ValueError(members)
    for key, kind in wanted.items():
        if not isinstance(members[key], kind) or (kind is int and isinstance(members[key], bool)):
            raise ValueError(key)
    return members


def _add_event(log: sqlite3.Connection, event: Mapping[str, Any], number: int) -> None:
    log.execute("INSERT OR IGNORE INTO event_types (name) VALUES (?)", (event["type"],))
    try:
        log.execute(
            "INSERT INTO events"
            " (seq, stream, version, id, type, schema, at, subject, data, hash) VALUES"
            " (?, (SELECT id FROM streams WHERE name = ?), ?, ?,"
            " (SELECT id FROM event_types WHERE name = ?), ?, ?, ?, ?, ?)",
            (
                number, event["stream"], event["version"], UUID(event["id"]).bytes, event["type"],
                event["schema"], event["at"], event["subject"], canonical_json(event["data"]),
                stored_hash(event["hash"]),
            ),
        )  # fmt: skip
    except sqlite3.IntegrityError:
        raise LineError(number, "has the id of another event") from None


def _add_text(log: sqlite3.Connection, text: Mapping[str, Any], number: int) -> None:
    """Add a text; without a body, it is withheld unless an earlier line has the body."""
    salt = bytes.fromhex(text["salt"]) if "salt" in text else WITHHELD
    log.execute(
        "INSERT INTO contents (rowid, ref, salt, body) VALUES (?, ?, ?, ?) ON CONFLICT (ref)"
        " DO UPDATE SET rowid = excluded.rowid, salt = excluded.salt, body = excluded.body"
        " WHERE excluded.body NOTNULL",
        (number, text["ref"], salt, text.get("body")),
    )
