"""Checks a log against its own hashes; the store's README says what that proves.

`recomputed` folds the events of a stream again, in a temporary log, so that its tables can be
compared: hashes cover events, but not tables.

Values are compared by type and byte by byte: a blob with the same bytes in a text column is a
change, too. Rows are read from the tables, never from an index, which may have other values.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import Any, NamedTuple

from kindlm_store.append import WITHHELD, ref_of
from kindlm_store.canonical import GENESIS, event_hash, hash_text
from kindlm_store.database import open_reader, translated
from kindlm_store.erasing import Erasures, erased_by_log, refs_in
from kindlm_store.projecting import Projection, Projector, quoted
from kindlm_store.reading import RecordedEvent, events_of_types, last_position, stored_texts
from kindlm_store.salvage import scratch_log
from kindlm_store.store_errors import ProjectionError

Claims = Mapping[str, Callable[[RecordedEvent], Mapping[str, str]]]
"""Event type → function that returns the heads, by stream, that an event of this type noted."""

_REFS_AT_ONCE = 10_000

_EVENTS = """
SELECT seq, stream, id, version, type, schema, at, subject, data, hash FROM events NOT INDEXED
"""
_OF_STREAM = """
 WHERE seq IN (SELECT seq FROM events WHERE stream = (SELECT id FROM streams WHERE name = ?))
"""


class Problem(NamedTuple):
    """A difference from what was written, in words, with its stream and event if it has one."""

    stream: str | None
    version: int | None
    what: str


@dataclass(slots=True)
class Verification:
    """The result of a check: what was counted, and the differences from what was written.

    `withheld` counts texts that never arrived, `heads` the noted hashes that were compared.
    """

    streams: int = 0
    events: int = 0
    texts: int = 0
    erased: int = 0
    withheld: int = 0
    heads: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the check found no problem."""
        return not self.problems


def verify_file(
    path: str | os.PathLike[str],
    stream: str | None = None,
    *,
    heads: Mapping[str, str] | None = None,
    claims: Claims | None = None,
    erasures: Erasures | None = None,
) -> Verification:
    """Check the stored events and texts of a log against their hashes, or only those of a stream.

    `heads` are hashes by stream, `sha256:<hex>`, that were noted elsewhere, and `claims` read those
    that events noted. An event of the stream must have each of them. With `erasures`, an event must
    record each erased text. Raises `OpenError` if the file does not exist, or is no event log.
    """
    file = Path(path)
    with translated(file), closing(open_reader(file)) as connection:
        connection.row_factory = None
        # Bytes that are not UTF-8 remain distinct.
        connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
        connection.execute("BEGIN")
        check = _Check(connection, stream)
        check.check_events(heads or {}, claims or {})
        check.check_texts(erasures)
        return check.found


@dataclass(slots=True)
class _Stream:
    """A stream: its row as stored, the noted hashes that were not met yet, and its end so far."""

    name: str
    stored_version: Any
    stored_head: Any
    sealed: Any
    unmet: set[str]
    version: int = 0
    head: bytes = GENESIS


class _Check:
    """Checks one snapshot of a file: one stream with its texts, or everything."""

    def __init__(self, connection: sqlite3.Connection, only: str | None) -> None:
        self.found = Verification()
        self._connection = connection
        self._only = only
        self._types: dict[Any, Any] = dict(
            connection.execute("SELECT id, name FROM event_types NOT INDEXED")
        )
        self._refs: dict[str, tuple[str, int]] = {}
        self._erased: set[str] = set()

    def check_events(self, heads: Mapping[str, str], claims: Claims) -> None:
        """Check the chains of all streams, and that the texts which events refer to have rows."""
        expected = self._expected(heads, claims)
        streams = self._streams(expected)
        if self._only is None:
            events = self._connection.execute(f"{_EVENTS} ORDER BY seq")
        else:
            query = f"{_EVENTS}{_OF_STREAM} ORDER BY seq"
            events = self._connection.execute(query, (self._only,))
        for position, number, *columns in events:
            stream = streams.get(number)
            if stream is not None:
                self._check_event(stream, position, columns)
            elif self._only is None:
                what = f"the event at position {position} belongs to no stream"
                self._problem(None, None, what)
            if len(self._refs) > _REFS_AT_ONCE:
                self._check_refs()
        self._check_refs()
        for stream in streams.values():
            self._check_end(stream)
        for name in sorted(expected.keys() - {stream.name for stream in streams.values()}):
            self._problem(name, None, "there is no such stream")

    def _expected(self, heads: Mapping[str, str], claims: Claims) -> dict[str, set[str]]:
        """Return the streams that must be there, with hashes that their events must have."""
        noted = [*heads.items()]
        for event in events_of_types(self._connection, claims):
            try:
                noted += claims[event.type](event).items()
            # The event was tampered with, which is another problem.
            except Exception as error:  # noqa: BLE001
                what = f"what the event notes cannot be read ({type(error).__name__})"
                self._problem(_as_text(event.stream), event.version, what)
        expected: dict[str, set[str]] = {} if self._only is None else {self._only: set()}
        for stream, head in noted:
            if self._only in (None, stream):
                expected.setdefault(stream, set()).add(head)
        return expected

    def check_texts(self, erasures: Erasures | None) -> None:
        """Check all texts, and that events record the erased ones."""
        if self._only is None:
            texts = "SELECT ref, salt, digest, body FROM contents NOT INDEXED"
            for row in self._connection.execute(texts):
                self._check_text(*row)
        if erasures is None or not self._erased:
            return
        try:
            gone = erased_by_log(self._connection, erasures)
        # An event was tampered with, which is another problem.
        except Exception as error:  # noqa: BLE001
            what = f"what was erased cannot be read from the events ({type(error).__name__})"
            self._problem(None, None, what)
            return
        for ref in sorted(self._erased - gone):
            what = f"text {_as_text(ref)} is missing, and no event records that it was erased"
            self._problem(None, None, what)

    def _problem(self, stream: str | None, version: object, what: str) -> None:
        at = version if isinstance(version, int) else None
        self.found.problems.append(Problem(stream, at, what))

    def _streams(self, expected: Mapping[str, set[str]]) -> dict[Any, _Stream]:
        streams = {}
        for number, name, version, head, sealed in self._connection.execute(
            "SELECT id, name, version, head, sealed FROM streams NOT INDEXED"
        ):
            shown = _as_text(name)
            if self._only in (None, shown):
                if type(name) is not str:
                    self._problem(shown, None, "the name of the stream is not a text")
                unmet = {*expected.get(shown, ())}
                streams[number] = _Stream(shown, version, head, sealed, unmet)
        self.found.streams = len(streams)
        self.found.heads = sum(len(stream.unmet) for stream in streams.values())
        return streams

    def _check_event(self, stream: _Stream, position: int, columns: list[Any]) -> None:
        stream.version += 1
        self.found.events += 1
        stored = columns[-1]
        problem = self._problem_of(stream, position, columns)
        if problem is not None:
            self._problem(stream.name, stream.version, problem)
        # Continue with the stored hash, so that a changed event is one problem.
        if type(stored) is bytes:
            stream.head = stored
            if stream.unmet:
                stream.unmet.discard(hash_text(stored))

    def _problem_of(self, stream: _Stream, position: int, columns: list[Any]) -> str | None:
        """Return why an event is invalid, None if it is as it was written."""
        id_, version, type_, *rest = columns
        name: Any = self._types.get(type_)
        event = RecordedEvent(position, id_, stream.name, version, name, *rest)
        if not event.is_in_form:
            return "not in the stored form"
        if version != stream.version:
            return f"the version is {version}"
        seal = stream.sealed == 1 and version == stream.stored_version
        try:
            expected = event_hash(stream.head, event, seal=seal)
        except UnicodeEncodeError:
            return "not UTF-8"
        for ref in refs_in([event.json]):
            self._refs.setdefault(ref, (stream.name, version))
        return None if expected == event.raw_hash else "the event does not match its hash"

    def _check_end(self, stream: _Stream) -> None:
        end = (stream.version, stream.head)
        if not stream.version or end != (stream.stored_version, stream.stored_head):
            self._problem(stream.name, None, "the stream does not end where its record states")
        if type(stream.stored_head) is not bytes or stream.sealed not in (0, 1):
            self._problem(stream.name, None, "the record of the stream is not in the stored form")
        for head in sorted(stream.unmet):
            self._problem(stream.name, None, f"no event has the recorded hash: {head}")

    def _check_refs(self) -> None:
        """Check that texts which events refer to have rows, and for one stream, the texts."""
        for row in stored_texts(self._connection, self._refs):
            self._refs.pop(row[0], None)
            if self._only is not None:  # else `check_texts` checks all
                self._check_text(*row)
        for ref, (stream, version) in self._refs.items():
            self._problem(stream, version, f"text {_as_text(ref)} is missing")
        self._refs.clear()

    def _check_text(self, ref: Any, salt: Any, digest: Any, body: Any) -> None:
        kinds = (type(ref), type(salt), type(digest), type(body))
        if type(ref) is str and salt is digest is body is None:
            self.found.erased += 1
            self._erased.add(ref)
        elif type(ref) is str and salt == WITHHELD and digest is body is None:
            self.found.withheld += 1
        elif kinds != (str, bytes, bytes, str):
            self._problem(None, None, f"text {_as_text(ref)}: not in the stored form")
        else:
            self.found.texts += 1
            raw = body.encode(errors="surrogateescape")
            if ref_of(salt, raw) != ref or sha256(raw).digest() != digest:
                self._problem(None, None, f"text {_as_text(ref)} does not match its reference")


def _as_text(stored: object) -> str:
    """Return a stored name, of whatever type, for a message."""
    if isinstance(stored, str):
        stored = stored.encode(errors="surrogateescape")
    if isinstance(stored, bytes):
        return stored.decode(errors="backslashreplace")
    return repr(stored)


_EVENTS_TO_FOLD = """
SELECT * FROM events
 WHERE seq IN (SELECT seq FROM events WHERE stream = (SELECT id FROM streams WHERE name = ?)
               UNION
               SELECT seq FROM events
                WHERE type IN (SELECT id FROM event_types
                                WHERE name IN (SELECT value FROM json_each(?))))
"""


@contextmanager
def recomputed(
    connection: sqlite3.Connection,
    projections: Sequence[Projection],
    stream: str,
    beside: Collection[str],
) -> Iterator[sqlite3.Connection]:
    """Fold projections into a temporary database; raise `ProjectionError` if that fails.

    The events are those of a stream, and of the types `beside` from all streams. If `connection`
    has an open transaction, they are from one snapshot.
    """
    with closing(scratch_log()) as apart:
        apart.execute("BEGIN")
        for table, query, asked in (
            ("streams", "SELECT * FROM streams", ()),
            ("event_types", "SELECT * FROM event_types", ()),
            ("events", _EVENTS_TO_FOLD, (stream, dumps([*beside]))),
        ):
            rows = connection.execute(query, asked)
            rows.row_factory = None
            places = ",".join("?" * len(rows.description))
            apart.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608
        for projection in projections:
            for sql in projection.tables.values():
                apart.execute(sql)
        projector = Projector(apart, projections)
        for failed, problem in projector.advance(projections, 0, last_position(apart)).items():
            raise ProjectionError(failed, problem)
        apart.execute("COMMIT")
        yield apart


def rows_of(
    connection: sqlite3.Connection, table: str, where: str, parameters: Mapping[str, Any]
) -> set[tuple[Any, ...]]:
    """Return the rows of a table that fulfil a condition in SQL."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return {*cursor.execute(f"SELECT * FROM {quoted(table)} WHERE {where}", parameters)}  # noqa: S608
