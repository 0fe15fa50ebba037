"""Appends submissions in the open write transaction: checks them, stores texts, chains events.

A submission is written completely or not at all, and a bad one does not affect the others of its
group. So the whole group is checked before anything is written.

Each text is stored once. Its digest finds it, and a salted hash is its reference. Once the row is
emptied, no one can test whether it was a certain text. The row of an erased text is empty and stays
empty. The row of a withheld text, which never arrived, has an empty salt; a merge may fill it.
"""

from __future__ import annotations

import os
import sqlite3
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import chain

from kindlm_store.canonical import GENESIS, event_hash, hash_text
from kindlm_store.new_event import Append, HeadOf, Text
from kindlm_store.reading import Head, RecordedEvent, last_position
from kindlm_store.store_errors import ConflictError, SealedError

_SIZES = (512, 256, 128, 64, 32, 16, 8, 4, 2, 1)
"""Rows per statement: few sizes, so that the connection keeps the statements prepared."""


@lru_cache(maxsize=512)
def _inserting(table: str, width: int, rows: int) -> str:
    row = f"({','.join('?' * width)})"
    return f"INSERT INTO {table} VALUES {','.join([row] * rows)}"  # noqa: S608


def insert_rows(
    connection: sqlite3.Connection, table: str, rows: Sequence[Sequence[object]]
) -> None:
    """Insert one or more rows into a table, in order.

    After each statement, Python waits for its global lock, up to 5 ms beside a busy thread. So one
    statement inserts many rows.
    """
    start, width = 0, len(rows[0])
    for size in _SIZES:
        while len(rows) - start >= size:
            values = chain.from_iterable(rows[start : start + size])
            connection.execute(_inserting(table, width, size), tuple(values))
            start += size


_REF_TAG = b"kindlm_store:text:1\n"
"""Makes references differ from all other SHA-256 hashes."""

_REF_BYTES = 24
_SALT_BYTES = 16
_ASKED_AT_ONCE = 500

WITHHELD = b""
"""The salt of a text that never arrived; no stored text has it."""


def ref_of(salt: bytes, body: bytes) -> str:
    """Return the reference of a text: 32 characters of base64url."""
    digest = sha256(b"".join((_REF_TAG, salt, body))).digest()
    return urlsafe_b64encode(digest[:_REF_BYTES]).decode()


Submission = Sequence[Append]
"""Appends that are written together, or not at all."""


@dataclass(slots=True)
class StreamState:
    """The state of a stream within the open transaction; `id` is 0 until it has a row."""

    id: int
    name: str
    version: int
    head: bytes
    sealed: bool


class Appender:
    """Writes groups through the write connection, and remembers the streams in between.

    `ends` has the ends of the streams that the last group wrote to.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._streams: dict[str, StreamState] = {}
        self._types: dict[str, int] = {}
        self._data_version = -1
        self.ends: dict[str, Head] = {}

    def forget(self) -> None:
        """Discard everything remembered about the file."""
        self._streams.clear()
        self._types.clear()

    def write(self, group: Sequence[Submission]) -> list[ConflictError | None]:
        """Write a group inside the open transaction; raise `sqlite3.Error` if that is impossible.

        Return for each submission why it was refused, None if it was written.
        """
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._data_version:
            # Another connection has committed since the last group.
            self.forget()
            self._data_version = version
        outcomes = self._check(group)
        accepted = [
            append
            for submission, refused in zip(group, outcomes, strict=True)
            if refused is None
            for append in submission
        ]
        refs = self._store_texts(accepted)
        position, types = last_position(self._connection), self._types
        rows: list[tuple[object, ...]] = []
        touched: dict[str, StreamState] = {}
        for append in accepted:
            stream = touched[append.stream] = self.stream(append.stream)
            number, last = self.number(stream), append.events[-1] if append.seal else None
            for event in append.events:
                data = event.parts[0]
                for gap, part in zip(event.gaps, event.parts[1:], strict=True):
                    if isinstance(gap, Text):
                        data = f'{data}{{"$ref":"{refs[gap.body]}"}}{part}'
                    else:
                        data = f'{data}"{hash_text(self.stream(gap.stream).head)}"{part}'
                position += 1
                stream.version += 1
                stream.sealed = event is last
                recorded = RecordedEvent(
                    position, event.raw_id, stream.name, stream.version, event.type, event.schema,
                    event.at, event.subject, data, b"",
                )  # fmt: skip
                stream.head = event_hash(stream.head, recorded, seal=stream.sealed)
                type_id = types.get(event.type) or self.type_id(event.type)
                rows.append((
                    position, event.raw_id, number, stream.version, type_id, event.schema, event.at,
                    event.subject, data, stream.head,
                ))  # fmt: skip
        if rows:
            insert_rows(self._connection, "events", rows)
        for stream in touched.values():
            self.save(stream)
        self.ends = {
            name: Head(stream.version, hash_text(stream.head), stream.sealed)
            for name, stream in touched.items()
        }
        return outcomes

    def stream(self, name: str) -> StreamState:
        """Return the state of a stream, which `save` writes."""
        known = self._streams.get(name)
        if known is None:
            row = self._connection.execute(
                "SELECT id, version, head, sealed FROM streams WHERE name = ?", (name,)
            ).fetchone()
            number, version, head, sealed = row or (0, 0, GENESIS, False)
            known = StreamState(number, name, version, head, bool(sealed))
            self._streams[name] = known
        return known

    def number(self, stream: StreamState) -> int:
        """Return the id of a stream; a new one gets a row."""
        if not stream.id:
            cursor = self._connection.execute(
                "INSERT INTO streams (name, version, head, sealed) VALUES (?, 0, ?, 0)",
                (stream.name, stream.head),
            )
            assert cursor.lastrowid is not None
            stream.id = cursor.lastrowid
        return stream.id

    def type_id(self, name: str) -> int:
        """Return the id of an event type."""
        types = self._types
        if name not in types:
            types.update(self._connection.execute("SELECT name, id FROM event_types"))
        if name not in types:
            cursor = self._connection.execute("INSERT INTO event_types (name) VALUES (?)", (name,))
            assert cursor.lastrowid is not None
            types[name] = cursor.lastrowid
        return types[name]

    def _check(self, group: Sequence[Submission]) -> list[ConflictError | None]:
        """Return for each submission why it does not fit its streams, or None."""
        outcomes: list[ConflictError | None] = []
        # By stream, its version and whether it is sealed, after the submissions so far.
        ends: dict[str, tuple[int, bool]] = {}
        for submission in group:
            after = dict(ends)
            try:
                for append in submission:
                    self._check_append(append, after)
            except ConflictError as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
                ends = after
        return outcomes

    def _check_append(self, append: Append, ends: dict[str, tuple[int, bool]]) -> None:
        """Put the end of a stream after an append into `ends`; raise ConflictError for a misfit."""
        gaps = [gap for event in append.events for gap in event.gaps]
        heads = [gap.stream for gap in gaps if isinstance(gap, HeadOf)]
        for name in (append.stream, *heads):
            if name not in ends:
                stream = self.stream(name)
                ends[name] = stream.version, stream.sealed
        version, sealed = ends[append.stream]
        for name in heads:
            if not ends[name][0]:
                raise ConflictError(f"{name}: has no event, so it has no head")
        if sealed:
            raise SealedError(f"{append.stream}: is sealed")
        if append.expected_version not in (None, version):
            reason = f"is at version {version}, not at {append.expected_version} as expected"
            raise ConflictError(f"{append.stream}: {reason}")
        ends[append.stream] = version + len(append.events), append.seal

    def _store_texts(self, accepted: Iterable[Append]) -> dict[str, str]:
        """Store the missing texts of events; return the references of all."""
        digests: dict[str, bytes] = {}
        for append in accepted:
            for event in append.events:
                for body in event.texts:
                    if body not in digests:
                        digests[body] = sha256(body.encode()).digest()
        refs: dict[bytes, str] = {}
        asked = [*digests.values()]
        for start in range(0, len(asked), _ASKED_AT_ONCE):
            piece = asked[start : start + _ASKED_AT_ONCE]
            marks = ",".join("?" * len(piece))
            query = f"SELECT digest, ref FROM contents WHERE digest IN ({marks})"  # noqa: S608
            refs.update(self._connection.execute(query, piece))
        new: list[tuple[str, bytes, bytes, str]] = []
        # One call, since each lets another thread run before it returns.
        salts = os.urandom(_SALT_BYTES * (len(digests) - len(refs)))
        for body, digest in digests.items():
            if digest not in refs:
                salt = salts[_SALT_BYTES * len(new) :][:_SALT_BYTES]
                refs[digest] = ref = ref_of(salt, body.encode())
                new.append((ref, salt, digest, body))
        if new:
            insert_rows(self._connection, "contents", new)
        return {body: refs[digest] for body, digest in digests.items()}

    def save(self, stream: StreamState) -> None:
        """Write the state of a stream, after its events: triggers refuse those after its seal."""
        self._connection.execute(
            "UPDATE streams SET version = ?, head = ?, sealed = ? WHERE id = ?",
            (stream.version, stream.head, stream.sealed, stream.id),
        )
