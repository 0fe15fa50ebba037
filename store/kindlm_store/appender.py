"""Appends a group of submissions inside the open write transaction: check, store texts, chain.

A submission is all or nothing, and one that does not fit leaves the others of its group alone.
So the group is checked first, against what the streams will be by then, and only what passed is
written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kindlm_store.bulk import insert_rows
from kindlm_store.canonical import GENESIS, envelope, event_hash, hash_text, uuid_text
from kindlm_store.contents import ContentWriter
from kindlm_store.errors import ConflictError, SealedError
from kindlm_store.events import HeadOf, RecordedRef, Text
from kindlm_store.reading import last_position

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from uuid import UUID

    from kindlm_store.payload import Payload

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
