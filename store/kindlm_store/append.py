"""Appends a group of submissions inside the open write transaction: check, store texts, chain.

A submission is all or nothing, and one that does not fit leaves the others of its group alone.
So the group is checked first, against what the streams will be by then, and only what passed is
written.

Texts are stored by reference: each once, found by its digest, named by a salted hash. The reference
of a text gives nothing away about it once the row is emptied: without the salt, nobody can try
whether it was a certain text. A row without its text says why: an erased one is empty and stays so;
a withheld one has an empty salt: its text never came here, and whoever has it may bring it.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from kindlm_store.canonical import GENESIS, envelope, event_hash, hash_text, uuid_text
from kindlm_store.errors import ConflictError, SealedError
from kindlm_store.events import Append, HeadOf, NewEvent, RecordedRef, Text, is_timestamp
from kindlm_store.payload import prepare, scrub
from kindlm_store.reading import last_position

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID

    from kindlm_store.payload import Payload


_SIZES = (512, 256, 128, 64, 32, 16, 8, 4, 2, 1)
"""Rows per statement: so few sizes that the connection keeps the statements prepared."""


@lru_cache(maxsize=512)
def _statement(insert: str, width: int, rows: int, ending: str) -> str:
    row = f"({','.join('?' * width)})"
    return f"{insert} VALUES {','.join([row] * rows)} {ending}"


def insert_rows(
    connection: sqlite3.Connection, insert: str, rows: Sequence[Sequence[object]], ending: str = ""
) -> None:
    """Insert rows in order.

    A statement lets go of Python's global lock while it runs and must get it back afterwards, which
    takes up to 5 ms beside a busy thread. One statement for many rows meets that once, and SQLite
    works while the other thread does.

    Args:
        connection: Where.
        insert: The statement up to VALUES.
        rows: As many values each as the statement names columns; at least one row.
        ending: What follows the values: a conflict clause.
    """
    start, width = 0, len(rows[0])
    for size in _SIZES:
        text = _statement(insert, width, size, ending)
        while len(rows) - start >= size:
            values = chain.from_iterable(rows[start : start + size])
            connection.execute(text, tuple(values))
            start += size


_REF_TAG = b"kindlm_store:text:1\n"
"""Keeps the hash of a reference apart from every other use of SHA-256."""

_REF_BYTES = 24
_SALT_BYTES = 16
_REMEMBERED = 10_000
"""Digests kept in memory; a row weighs about 300 bytes."""

_ASKED_AT_ONCE = 500

WITHHELD = b""
"""The salt of a text that was never sent; no stored text has it."""


def digest_of(body: bytes) -> bytes:
    """What an existing row is found by."""
    return sha256(body).digest()


def ref_of(salt: bytes, body: bytes) -> str:
    """The reference of a text: 32 characters of base64url."""
    digest = sha256(b"".join((_REF_TAG, salt, body))).digest()
    return urlsafe_b64encode(digest[:_REF_BYTES]).decode()


class ContentWriter:
    """Stores texts through the write connection, each once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._refs: dict[bytes, str] = {}

    def forget(self) -> None:
        """Drop what is remembered: another connection may have erased texts since."""
        self._refs.clear()

    def store(self, bodies: Iterable[str]) -> dict[str, str]:
        """Store texts that are not there yet, inside the open transaction.

        Returns:
            The reference of each text.
        """
        encoded = {body: body.encode() for body in bodies}
        digests = {body: digest_of(raw) for body, raw in encoded.items()}
        self._recall([digest for digest in digests.values() if digest not in self._refs])
        new = []
        for body, digest in digests.items():
            if digest not in self._refs:
                salt = os.urandom(_SALT_BYTES)
                self._refs[digest] = ref = ref_of(salt, encoded[body])
                new.append((ref, salt, digest, body))
        if new:
            insert_rows(self._connection, "INSERT INTO contents (ref, salt, digest, body)", new)
        refs = {body: self._refs[digest] for body, digest in digests.items()}
        if len(self._refs) > _REMEMBERED:
            self._refs.clear()
        return refs

    def _recall(self, digests: list[bytes]) -> None:
        for start in range(0, len(digests), _ASKED_AT_ONCE):
            asked = digests[start : start + _ASKED_AT_ONCE]
            marks = ",".join("?" * len(asked))
            self._refs.update(
                self._connection.execute(
                    f"SELECT digest, ref FROM contents WHERE digest IN ({marks})",  # noqa: S608
                    asked,
                )
            )


def prepared(append: Append, redact: Callable[[str], str]) -> PreparedAppend:
    """An append whose events are ready to be stored.

    Raises:
        ValueError: Something in it cannot be stored; the message names it.
    """
    _require_name("stream", append.stream)
    if not append.events:
        message = f"no event to append to {append.stream}"
        raise ValueError(message)
    events = []
    for event in append.events:
        _require_name("type", event.type)
        if event.subject is not None:
            _require_name("subject", event.subject)
        if event.schema < 1:
            message = f"schema {event.schema} of {event.type}: must be 1 or more"
            raise ValueError(message)
        if not is_timestamp(event.at):
            message = f"{event.at!r} is not a time in UTC, ISO 8601, with microseconds"
            raise ValueError(message)
        payload = prepare(event.data, redact)
        events.append(
            PreparedEvent(event.id, event.type, payload, event.schema, event.subject, event.at)
        )
    return PreparedAppend(append.stream, tuple(events), append.expected_version, append.seal)


def restored(append: PreparedAppend) -> Append:
    """An append as it can be submitted again."""
    events = [
        NewEvent(e.type, e.payload.restore(), e.schema, e.subject, e.id, e.at)
        for e in append.events
    ]
    return Append(append.stream, events, append.expected_version, append.seal)


@lru_cache(maxsize=4_096)
def _require_name(what: str, name: str) -> None:
    if not name or scrub(name) != name:
        message = f"{what} {name!r}: must be a text, not empty, without NUL or lone surrogates"
        raise ValueError(message)


Recorded = tuple[tuple[RecordedRef, ...], ...]
"""Where the events of one submission were recorded, per append."""


class PreparedEvent(NamedTuple):
    """A `NewEvent` whose data is ready to be stored; what the caller gave is let go."""

    id: UUID
    type: str
    payload: Payload
    schema: int
    subject: str | None
    at: str


class PreparedAppend(NamedTuple):
    """An `Append` whose events are ready to be stored."""

    stream: str
    events: tuple[PreparedEvent, ...]
    expected_version: int | None
    seal: bool


Submission = tuple[PreparedAppend, ...]
"""The appends of one submit: one transaction, all or nothing."""


class _End(NamedTuple):
    """Where a stream ends, as far as an append asks."""

    version: int
    sealed: bool


@dataclass(slots=True)
class _Stream:
    """A stream as the open transaction has it."""

    id: int
    name: str
    version: int
    head: bytes
    sealed: bool
    stored: bool

    def end(self) -> _End:
        return _End(self.version, self.sealed)


class Appender:
    """Writes groups through the write connection, and remembers the streams in between.

    Args:
        connection: The write connection.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._contents = ContentWriter(connection)
        self._streams: dict[str, _Stream] = {}
        self._types: dict[str, int] = {}
        self._data_version = -1

    def forget(self) -> None:
        """Drop all that is remembered of the file, after a rollback."""
        self._streams.clear()
        self._types.clear()
        self._contents.forget()

    def write(self, group: Sequence[Submission]) -> list[Recorded | ConflictError]:
        """Write a group inside the open transaction.

        Returns:
            Of each submission where its events are, or why it was refused.

        Raises:
            sqlite3.IntegrityError: An event id is recorded already; roll back, and write the
                submissions one by one.
            sqlite3.Error: The file cannot be written.
        """
        self._notice_others()
        accepted, outcomes = self._check(group)
        position = last_position(self._connection)
        refs = self._store_texts(accepted)
        rows: list[tuple[object, ...]] = []
        touched: dict[str, _Stream] = {}
        for index, submission in accepted.items():
            recorded = []
            for append in submission:
                stream = touched[append.stream] = self._stream(append.stream)
                if not stream.id:
                    stream.id = self._new_stream_id()
                first = len(rows)
                places = []
                for event in append.events:
                    position += 1
                    sealed = append.seal and len(rows) - first + 1 == len(append.events)
                    self._chain(event, stream, position, refs, rows, sealed=sealed)
                    places.append(RecordedRef(stream.version, hash_text(stream.head), position))
                recorded.append(tuple(places))
            outcomes[index] = tuple(recorded)
        self._insert(rows, touched)
        return [outcomes[index] for index in range(len(group))]

    def _notice_others(self) -> None:
        """Forget everything if another connection has committed since the last group."""
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._data_version:
            self.forget()
            self._data_version = version

    def _stream(self, name: str) -> _Stream:
        known = self._streams.get(name)
        if known is None:
            row = self._connection.execute(
                "SELECT id, version, head, sealed FROM streams WHERE name = ?", (name,)
            ).fetchone()
            known = (
                _Stream(0, name, 0, GENESIS, False, False)
                if row is None
                else _Stream(row[0], name, row[1], row[2], bool(row[3]), True)
            )
            self._streams[name] = known
        return known

    def _type(self, name: str) -> int:
        known = self._types.get(name)
        if known is None:
            if not self._types:
                self._types.update(self._connection.execute("SELECT name, id FROM event_types"))
            known = self._types.get(name)
        if known is None:
            cursor = self._connection.execute("INSERT INTO event_types (name) VALUES (?)", (name,))
            assert cursor.lastrowid is not None
            known = self._types[name] = cursor.lastrowid
        return known

    def _check(
        self, group: Sequence[Submission]
    ) -> tuple[dict[int, Submission], dict[int, Recorded | ConflictError]]:
        """Tell what fits from what does not, submission after submission."""
        accepted: dict[int, Submission] = {}
        refused: dict[int, Recorded | ConflictError] = {}
        ahead: dict[str, _End] = {}
        for index, submission in enumerate(group):
            try:
                ahead.update(self._after(submission, ahead))
            except ConflictError as error:
                refused[index] = error
            else:
                accepted[index] = submission
        return accepted, refused

    def _after(self, submission: Submission, ahead: dict[str, _End]) -> dict[str, _End]:
        """Where the streams of a submission end after it.

        Args:
            submission: What is to be written.
            ahead: Where streams end before it, as far as that is not where they end now.

        Raises:
            ConflictError: It does not fit.
        """
        then: dict[str, _End] = {}

        def end(name: str) -> _End:
            return then.get(name) or ahead.get(name) or self._stream(name).end()

        for append in submission:
            version, sealed = end(append.stream)
            if sealed:
                raise SealedError(append.stream, "is sealed")
            if append.expected_version not in (None, version):
                raise ConflictError(
                    append.stream,
                    f"is at version {version}, not at {append.expected_version} as expected",
                )
            for event in append.events:
                for gap in event.payload.gaps:
                    if isinstance(gap, HeadOf) and not end(gap.stream).version:
                        raise ConflictError(gap.stream, "has no event, so it has no head")
            then[append.stream] = _End(version + len(append.events), append.seal)
        return then

    def _store_texts(self, accepted: dict[int, Submission]) -> dict[str, str]:
        bodies = {
            gap.body: None
            for submission in accepted.values()
            for append in submission
            for event in append.events
            for gap in event.payload.gaps
            if isinstance(gap, Text)
        }
        return self._contents.store(bodies) if bodies else {}

    def _chain(
        self,
        event: PreparedEvent,
        stream: _Stream,
        position: int,
        refs: dict[str, str],
        rows: list[tuple[object, ...]],
        *,
        sealed: bool,
    ) -> None:
        """Put an event at the end of its stream, and its row among the others."""
        id_, type_, payload, schema, subject, at = event
        data = self._filled(payload, refs) if payload.gaps else payload.parts[0]
        raw_id = id_.bytes
        stream.version += 1
        about = envelope(
            id=uuid_text(raw_id),
            stream=stream.name,
            version=stream.version,
            type=type_,
            schema=schema,
            at=at,
            subject=subject,
            seal=sealed,
        )
        stream.head = event_hash(stream.head, about, data.encode())
        stream.sealed = sealed
        rows.append((
            position, raw_id, stream.id, stream.version, self._type(type_), schema, at, subject,
            data, stream.head,
        ))  # fmt: skip

    def _filled(self, payload: Payload, refs: dict[str, str]) -> str:
        return payload.fill(
            f'{{"$ref":"{refs[gap.body]}"}}'
            if isinstance(gap, Text)
            else f'"{hash_text(self._stream(gap.stream).head)}"'
            for gap in payload.gaps
        )

    def _new_stream_id(self) -> int:
        stored = self._connection.execute("SELECT max(id) FROM streams").fetchone()[0] or 0
        return int(max(stored, *(stream.id for stream in self._streams.values()))) + 1

    def _insert(self, rows: list[tuple[object, ...]], touched: dict[str, _Stream]) -> None:
        if not rows:
            return
        insert_rows(
            self._connection,
            "INSERT INTO events (seq, id, stream, version, type, schema, at, subject, data, hash)",
            rows,
        )
        # After the events: the triggers refuse an event of a stream that is sealed.
        for name, stream in touched.items():
            if stream.stored:
                self._connection.execute(
                    "UPDATE streams SET version = ?, head = ?, sealed = ? WHERE id = ?",
                    (stream.version, stream.head, stream.sealed, stream.id),
                )
            else:
                self._connection.execute(
                    "INSERT INTO streams (id, name, version, head, sealed) VALUES (?, ?, ?, ?, ?)",
                    (stream.id, name, stream.version, stream.head, stream.sealed),
                )
                stream.stored = True
