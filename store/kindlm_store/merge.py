"""Taking streams from another log: each is checked, then appended byte by byte as it was there.

A stream that is here already must begin, or go on, with the same events; what is missing is
appended. One that went on apart in two files is refused, and nothing of it is taken. Which file is
taken first makes no difference, and a second time changes nothing.

The same holds for texts: one that an event says was erased is erased; of the others, one that is in
any of the files is here in the end; what is in none of them is withheld.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Literal, NamedTuple
from uuid import UUID

from kindlm_store.append import WITHHELD, digest_of, insert_rows, ref_of
from kindlm_store.canonical import GENESIS, event_hash, hash_text
from kindlm_store.copies import StoredEvent, StoredStream, events_after, hash_at
from kindlm_store.database import immediate
from kindlm_store.erasing import EMPTY_ROWS, empty_rows, erased_by_log, refs_in
from kindlm_store.errors import LockHeldError, StoreError
from kindlm_store.events import RecordedEvent
from kindlm_store.locks import StreamLock
from kindlm_store.payload import is_name, read_data, require_form, scrub
from kindlm_store.project import read_states
from kindlm_store.reading import last_position

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kindlm_store.copies import Source, StoredText
    from kindlm_store.erasing import Erasures
    from kindlm_store.project import Projector
    from kindlm_store.verify import Claims

Accept = Callable[[RecordedEvent], None]
"""Looks at an event before it is taken; raises ValueError, with the reason, to refuse it."""

_PIECE = 500

RefusalKind = Literal["going on", "apart", "unsound"]


class Refusal(NamedTuple):
    """Why nothing of a stream was taken.

    Attributes:
        stream: Name of the stream.
        kind: A process is writing it; it went on apart in both logs; or something is wrong with it.
        reason: In words.
    """

    stream: str
    kind: RefusalKind
    reason: str


class RefusedError(StoreError):
    """A stream could not be taken.

    Attributes:
        refusal: Why.
    """

    def __init__(self, stream: str, kind: RefusalKind, reason: str) -> None:
        super().__init__(f"{stream}: {reason}")
        self.refusal = Refusal(stream, kind, reason)


@dataclass(slots=True)
class Taken:
    """What was taken.

    Attributes:
        streams: Streams that have events now that they had not → how many.
        known: Number of events that were here already.
        erased: Number of texts that were erased here, since they were there.
        filled: Number of texts that were withheld here and are there now.
        withheld: Number of texts that were not in the source either.
        refused: Streams of which nothing was taken, with the reason.
    """

    streams: dict[str, int] = field(default_factory=dict)
    known: int = 0
    erased: int = 0
    filled: int = 0
    withheld: int = 0
    refused: list[Refusal] = field(default_factory=list)

    @property
    def added(self) -> int:
        """Number of events that are here now and were not before."""
        return sum(self.streams.values())

    def note(self, stream: StoredStream, part: _Part) -> None:
        """Note a stream that was taken."""
        self.known += part.known
        self.erased += part.erased
        self.filled += part.filled
        if part.known < stream.version:
            self.streams[stream.name] = stream.version - part.known


@dataclass(slots=True)
class _Part:
    """What was taken of one stream: how many of its events were known, and of texts as in `Taken`.

    `absent` are the texts that were in neither log. Every event that is named as erased adds to
    `erased` what it emptied.
    """

    known: int
    erased: int = 0
    filled: int = 0
    absent: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms streams are taken.

    Attributes:
        accept: Looks at each event.
        claims: Event type → heads, by stream, that an event of it notes: they must be here.
        erasures: Event type → texts that an event of it erased: they are erased here, too.
    """

    accept: Accept
    claims: Claims
    erasures: Erasures


class Taking:
    """Takes streams into a log through its write connection."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, projector: Projector, terms: Terms
    ) -> None:
        self._connection = connection
        self._path = path
        self._projector = projector
        self._terms = terms
        self._claimed: list[tuple[str, str, str]] = []
        self._whole: set[str] = set()
        self._absent: set[str] = set()
        self._lost_here: set[str] | None = None

    def one_by_one(self, source: Source) -> Taken:
        """Take each stream in a transaction of its own; one that is refused stops no other."""
        taken = Taken()
        waiting: list[StoredStream] = []
        for stream in source.streams():
            refusal = self._try(source, stream, taken)
            if refusal is not None:
                # It may note the head of a stream that comes later.
                waiting.append(stream)
        for stream in waiting:
            refusal = self._try(source, stream, taken)
            if refusal is not None:
                taken.refused.append(refusal)
        with immediate(self._connection):
            self._erase(source, taken)
        return taken

    def together(self, source: Source) -> Taken:
        """Take all streams in one transaction, or none.

        Raises:
            RefusedError: One of them cannot be taken.
        """
        taken = Taken()
        self._claimed.clear()
        # The locks are given back after the commit: who goes on with a run sees all of it.
        with ExitStack() as locks, immediate(self._connection):
            for stream in source.streams():
                self._note(taken, stream, self._take(source, stream, locks))
            self._settle("the file")
            self._erase(source, taken)
        return taken

    def _try(self, source: Source, stream: StoredStream, taken: Taken) -> Refusal | None:
        # One that was refused halfway leaves what it claimed: the next does not answer for it.
        self._claimed.clear()
        try:
            with ExitStack() as locks, immediate(self._connection):
                part = self._take(source, stream, locks)
                self._settle(stream.name)
        except RefusedError as error:
            return error.refusal
        self._note(taken, stream, part)
        return None

    def _note(self, taken: Taken, stream: StoredStream, part: _Part) -> None:
        taken.note(stream, part)
        self._whole.add(stream.name)
        self._absent |= part.absent

    def _erase(self, source: Source, taken: Taken) -> None:
        """Erase what was erased there, as far as events say so that are here now.

        Of a stream that was refused nothing is believed, not even what it says was erased.
        """
        gone = source.erased(self._terms.erasures, self._whole) if self._whole else ()
        emptied = empty_rows(self._connection, gone)
        taken.erased += len(set(emptied) - self._absent)
        taken.withheld += len(self._absent.difference(gone))

    def _take(self, source: Source, stream: StoredStream, locks: ExitStack) -> _Part:
        """Append what is missing of a stream; compare what is here, and fill its gaps."""
        common = self._common(source, stream)
        if common < stream.version:
            if source.is_going_on(stream.name):
                raise RefusedError(stream.name, "going on", "a process is still writing it")
            _hold(self._path, stream.name, locks)
        part = _Part(common)
        self._append(source, stream, part)
        return part

    def _common(self, source: Source, stream: StoredStream) -> int:
        """Return with how many events the stream begins here as it does there."""
        _require_stream(stream)
        row = self._connection.execute(
            "SELECT version, sealed FROM streams WHERE name = ?", (stream.name,)
        ).fetchone()
        version, sealed = row or (0, 0)
        common = min(version, stream.version)
        if common and not self._equal(source, stream.name, common):
            first, last = 1, common
            while first < last:
                middle = (first + last) // 2
                if self._equal(source, stream.name, middle):
                    first = middle + 1
                else:
                    last = middle
            reason = f"it went on apart: from event {first:,} on it is another one here"
            raise RefusedError(stream.name, "apart", reason)
        if common == stream.version:
            if stream.head != hash_at(self._connection, stream.name, common):
                reason = "it does not end where its record says"
                raise RefusedError(stream.name, "unsound", reason)
            if stream.sealed != (sealed and common == version):
                reason = "the same events end here in another way: sealed, or not"
                raise RefusedError(stream.name, "unsound", reason)
        return common

    def _equal(self, source: Source, stream: str, version: int) -> bool:
        return source.hash_at(stream, version) == hash_at(self._connection, stream, version)

    def _append(self, source: Source, stream: StoredStream, part: _Part) -> None:
        texts = _Texts(self._connection, source, part, self._was_lost)
        writer = _StreamWriter(self._connection, source, stream, part.known, texts)
        try:
            for recorded in writer.write():
                self._terms.accept(recorded)
                claim = self._terms.claims.get(recorded.type)
                for claimed, head in (claim(recorded) if claim else {}).items():
                    self._claimed.append((stream.name, claimed, str(head)))
                erasure = self._terms.erasures.get(recorded.type)
                if erasure and (refs := erasure(recorded).refs):
                    part.erased += len(empty_rows(self._connection, refs))
        except (ValueError, LookupError, TypeError, sqlite3.IntegrityError) as error:
            raise RefusedError(stream.name, "unsound", str(error)) from None

    def _was_lost(self, ref: str) -> bool:
        """Whether a row that is empty here was emptied although no event says so."""
        if self._lost_here is None:
            empty = {row[0] for row in self._connection.execute(EMPTY_ROWS)}
            gone = erased_by_log(self._connection, self._terms.erasures, empty)
            self._lost_here = empty - gone
        return ref in self._lost_here

    def _settle(self, what: str) -> None:
        """Before the commit: what was noted must hold, and the tables must follow.

        Raises:
            RefusedError: They do not.
        """
        claimed, self._claimed = self._claimed, []
        for stream, about, head in claimed:
            if not self._has(about, head):
                reason = f"it notes an end of {about} that this log does not have"
                raise RefusedError(stream, "unsound", reason)
        before = read_states(self._connection)
        self._projector.fold()
        for name, state in read_states(self._connection).items():
            if state.error and not before[name].error:
                reason = f"the table {name!r} cannot be computed from it: {state.error}"
                raise RefusedError(what, "unsound", reason)

    def _has(self, stream: str, head: str) -> bool:
        row = self._connection.execute(
            "SELECT 1 FROM events WHERE stream = (SELECT id FROM streams WHERE name = ?)"
            " AND hash = ? ORDER BY version DESC LIMIT 1",
            (stream, _stored_hash(head)),
        ).fetchone()
        return row is not None


class _StreamWriter:
    """Appends what is missing of one stream, piece by piece, inside the open transaction."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        source: Source,
        stream: StoredStream,
        common: int,
        texts: _Texts,
    ) -> None:
        self._connection = connection
        self._source = source
        self._stream = stream
        self._common = common
        self._texts = texts
        self._version = common
        self._head = (common and hash_at(connection, stream.name, common)) or GENESIS
        self._position = last_position(connection)

    def write(self) -> Iterator[RecordedEvent]:
        """Append the events and their texts; yield each event before it is written.

        Raises:
            ValueError: Something is not as it must be.
            sqlite3.IntegrityError: An event is recorded in another stream.
        """
        events = self._source.events(self._stream.name, 0)
        for after in range(0, self._common, _PIECE):
            known = list(islice(events, min(_PIECE, self._common - after)))
            self._compare(known, after)
            self._texts.take(refs_in(event.data for event in known))
        if self._common == self._stream.version:
            return
        known_here, number = self._number()
        while piece := list(islice(events, _PIECE)):
            yield from self._piece(piece, number)
        if (self._version, self._head) != (self._stream.version, self._stream.head):
            message = "it does not end where its record says"
            raise ValueError(message)
        end = (self._version, self._head, self._stream.sealed)
        if known_here:
            self._connection.execute(
                "UPDATE streams SET version = ?, head = ?, sealed = ? WHERE id = ?", (*end, number)
            )
        else:
            self._connection.execute(
                "INSERT INTO streams (id, name, version, head, sealed) VALUES (?, ?, ?, ?, ?)",
                (number, self._stream.name, *end),
            )

    def _compare(self, theirs: Sequence[StoredEvent], after: int) -> None:
        """Hold events to those that are here: their last hash is, but that is only what it says."""
        ours = events_after(self._connection, self._stream.name, after, len(theirs))
        for version, (here, there) in enumerate(zip_longest(ours, theirs), after + 1):
            if here != there:
                message = f"event {version:,} is not the one that is here under the same hash"
                raise ValueError(message)

    def _number(self) -> tuple[bool, int]:
        row = self._connection.execute(
            "SELECT id FROM streams WHERE name = ?", (self._stream.name,)
        ).fetchone()
        if row:
            return True, row[0]
        last = self._connection.execute("SELECT max(id) FROM streams").fetchone()[0] or 0
        return False, last + 1

    def _piece(self, piece: Sequence[StoredEvent], number: int) -> Iterator[RecordedEvent]:
        refs: dict[str, None] = {}
        rows = []
        for event in piece:
            recorded = self._checked(event, refs)
            yield recorded
            rows.append((
                recorded.position, event.id, number, event.version, self._type(event.type),
                event.schema, event.at, event.subject, event.data, event.hash,
            ))  # fmt: skip
        self._texts.take(list(refs))
        insert_rows(
            self._connection,
            "INSERT INTO events (seq, id, stream, version, type, schema, at, subject, data, hash)",
            rows,
        )

    def _checked(self, event: StoredEvent, refs: dict[str, None]) -> RecordedEvent:
        """Return the event as it will be read, if it is what its chain says it must be."""
        self._version += 1
        self._position += 1
        require_form(event, self._version)
        data, used = read_data(event)
        refs.update(dict.fromkeys(used))
        sealing = self._stream.sealed and self._version == self._stream.version
        self._head = event_hash(
            self._head, event.data.encode(), id=event.id, stream=self._stream.name,
            version=self._version, type=event.type, schema=event.schema, at=event.at,
            subject=event.subject, seal=sealing,
        )  # fmt: skip
        if self._head != event.hash:
            message = f"event {self._version:,} does not match its hash"
            raise ValueError(message)
        return RecordedEvent(
            self._position, UUID(bytes=event.id), self._stream.name, event.version, event.type,
            event.schema, event.at, event.subject, data, hash_text(event.hash),
        )  # fmt: skip

    def _type(self, name: str) -> int:
        row = self._connection.execute(
            "SELECT id FROM event_types WHERE name = ?", (name,)
        ).fetchone()
        if row:
            return int(row[0])
        cursor = self._connection.execute("INSERT INTO event_types (name) VALUES (?)", (name,))
        assert cursor.lastrowid is not None
        return cursor.lastrowid


class _Texts:
    """Takes the texts that events refer to, inside the open transaction.

    Args:
        connection: The write connection.
        source: Where from.
        part: Counts what became of them.
        was_lost: Tells of an empty row whether no event says that it was erased.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        source: Source,
        part: _Part,
        was_lost: Callable[[str], bool],
    ) -> None:
        self._connection = connection
        self._source = source
        self._part = part
        self._was_lost = was_lost

    def take(self, refs: Sequence[str]) -> None:
        """Store texts that are not here, and fill what is withheld; one that was erased stays so.

        Raises:
            ValueError: A text is not what its reference says, or there is nothing of it.
        """
        for start in range(0, len(refs), _PIECE):
            self._some(refs[start : start + _PIECE])

    def _some(self, refs: Sequence[str]) -> None:
        marks = ",".join("?" * len(refs))
        query = f"SELECT ref, salt, body IS NULL FROM contents WHERE ref IN ({marks})"  # noqa: S608
        here = {ref: (salt, empty) for ref, salt, empty in self._connection.execute(query, refs)}
        rows: list[tuple[object, ...]] = []
        filled: list[tuple[object, ...]] = []
        seen = set()
        for text in self._source.texts(refs):
            seen.add(text.ref)
            row = _text_row(text)
            if row is None and text.ref not in here:
                # If it was erased there, that is told once it is known what is taken.
                self._part.absent.add(text.ref)
                rows.append((text.ref, WITHHELD, None, None))
            elif row is not None and text.ref not in here:
                rows.append(row)
            elif row is not None and self._may_fill(text.ref, *here[text.ref]):
                filled.append((*row[1:], text.ref))
        if missing := set(refs) - seen:
            message = f"the text {min(missing)} is missing"
            raise ValueError(message)
        if rows:
            insert_rows(self._connection, "INSERT INTO contents (ref, salt, digest, body)", rows)
        if filled:
            self._part.filled += len(filled)
            with _without_trigger(self._connection, "contents_update"):
                self._connection.executemany(
                    "UPDATE contents SET salt = ?, digest = ?, body = ? WHERE ref = ?", filled
                )

    def _may_fill(self, ref: str, salt: bytes | None, empty: int) -> bool:
        return bool(empty) and (salt == WITHHELD or self._was_lost(ref))


def _text_row(text: StoredText) -> tuple[str, bytes, bytes, str] | None:
    """Return the row of a text, None where only its reference is there.

    Raises:
        ValueError: It is not what its reference says.
    """
    if text.body is None:
        return None
    body = text.body.encode()
    if not text.salt or scrub(text.body) != text.body:
        message = f"the text {text.ref} is not in the stored form"
        raise ValueError(message)
    if ref_of(text.salt, body) != text.ref:
        message = f"the text {text.ref} does not match its reference"
        raise ValueError(message)
    return text.ref, text.salt, digest_of(body), text.body


@contextmanager
def _without_trigger(connection: sqlite3.Connection, name: str) -> Iterator[None]:
    """Take a trigger away for as long as the block lasts, inside the open transaction.

    What it refuses to every other program is done here for a text whose reference was checked: SQL
    can not compute that hash.
    """
    row = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    if row:
        connection.execute(f"DROP TRIGGER {name}")
    yield
    if row:
        connection.execute(row[0])


def _hold(path: Path, stream: str, locks: ExitStack) -> None:
    try:
        locks.enter_context(StreamLock(path, stream))
    except LockHeldError as error:
        raise RefusedError(stream, "going on", str(error)) from None


def _stored_hash(shown: str) -> bytes:
    try:
        return b"\x01" + bytes.fromhex(shown.removeprefix("sha256:"))
    except ValueError:
        return b""


def _require_stream(stream: StoredStream) -> None:
    if (
        not is_name(stream.name)
        or type(stream.version) is not int
        or stream.version < 1
        or type(stream.head) is not bytes
    ):
        raise RefusedError(str(stream.name), "unsound", "its record is not in the stored form")
