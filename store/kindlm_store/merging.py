"""Merges streams of another log: checks each, then appends it byte by byte.

A stream that exists here must begin with the same events, or continue them; missing events are
appended. A stream that continued differently in two files is refused, and nothing of it is taken.
The order of merges makes no difference, and repeating one changes nothing.

Texts follow the same rule. A text that an event erased is erased here. Of the others, this file has
each text that any of the files has; a text that none has is withheld.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from hashlib import sha256
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kindlm_store.append import INSERT_EVENTS, INSERT_TEXTS, WITHHELD, insert_rows, ref_of
from kindlm_store.canonical import GENESIS, stored_hash
from kindlm_store.database import immediate, snapshot, translated
from kindlm_store.erasing import empty_rows, erased_by_log, give_back, refs_in
from kindlm_store.locks import StreamLock, is_held
from kindlm_store.new_event import NewEvent, Text, is_timestamp, require_name, scrub
from kindlm_store.projecting import read_states
from kindlm_store.reading import (
    RecordedEvent,
    events_after,
    hash_at,
    last_position,
    stored_texts,
)
from kindlm_store.store_errors import LockHeldError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from kindlm_store.erasing import Erasures
    from kindlm_store.log import EventLog
    from kindlm_store.projecting import Projector
    from kindlm_store.verification import Claims

Accept = Callable[[RecordedEvent], None]
"""Looks at an event before it is taken; raises ValueError, with the reason, to refuse it."""

_ANOTHER_END = "it does not end where its record states"

_PIECE = 500
_UUID_BYTES = 16
_TEXT_REF = re.compile(r"[A-Za-z0-9_-]{32}")

RefusalKind = Literal["going on", "apart", "behind", "unsound"]


@dataclass(eq=False)
class RefusedError(StoreError):
    """Nothing of a stream was taken.

    Attributes:
        stream: Name of the stream.
        kind: A process is writing it; it went on apart in both logs; events before those of the
            source are not here; or something is wrong with it.
        reason: Why, in words.
        version: The event that is wrong, if it is one.
        ref: The text that is wrong, if it is one.
    """

    stream: str
    kind: RefusalKind
    reason: str
    version: int | None = None
    ref: str | None = None

    def __str__(self) -> str:
        return f"{self.stream}: {self.reason}"


class Begin(NamedTuple):
    """Behind which event a stream begins in a source that does not have all of it.

    Attributes:
        version: Version of that event, from 1.
        hash: Its tagged hash. The log must have exactly this event.
    """

    version: int
    hash: bytes


_WHOLE = Begin(0, GENESIS)


class _TextError(ValueError):
    """A text is invalid."""

    def __init__(self, ref: str, what: str) -> None:
        super().__init__(f"the text {ref} {what}")
        self.ref = ref


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
    refused: list[RefusedError] = field(default_factory=list)

    @property
    def added(self) -> int:
        """Number of events that are here now and were not before."""
        return sum(self.streams.values())


class _Stream(NamedTuple):
    """The record of a stream, as stored."""

    name: str
    version: int
    head: bytes
    sealed: bool


@dataclass(eq=False, slots=True)
class Merge:
    """Appends what another log has and one has not, byte by byte, and folds it.

    Attributes:
        log: The log that takes.
        source: A connection to the other log, to read one snapshot of; a `scratch_log` for what is
            no file.
        source_path: Its file: whose streams may be locked, and what errors name.
        accept: Looks at each event before it is taken.
        claims: Event type → heads, by stream, that an event of it notes: they must be here.
        erasures: Event type → texts that an event of it erased: they are erased here, too, and
            nothing else is.
        begins: Stream → behind which event it begins in the source; absent: with its first.
    """

    log: EventLog
    source: sqlite3.Connection
    source_path: Path
    _: KW_ONLY
    accept: Accept
    claims: Claims = field(default_factory=dict)
    erasures: Erasures = field(default_factory=dict)
    begins: Mapping[str, Begin] = field(default_factory=dict)
    connection: sqlite3.Connection = field(init=False)
    projector: Projector = field(init=False)
    _claimed: list[tuple[str, str, str]] = field(default_factory=list, init=False)
    _accepted: set[str] = field(default_factory=set, init=False)
    _at: int | None = field(default=None, init=False)
    _last_text: int = field(init=False)

    def take(self, *, together: bool = False) -> Taken:
        """Take all streams, or none; or, unless `together`, each by itself.

        Raises:
            RefusedError: A stream cannot be taken `together` with the others.
            OpenError: The file cannot be written, or the other one cannot be read.
        """

        def run(connection: sqlite3.Connection, projector: Projector) -> Taken:
            self.connection, self.projector = connection, projector
            self._last_text = self._value("SELECT max(rowid) FROM contents") or 0
            with snapshot(self.source, self.source_path):
                taken = self._together() if together else self._one_by_one()
            if taken.erased:
                give_back(connection)
            return taken

        return self.log.run(run)

    def _one_by_one(self) -> Taken:
        """Take each stream in a transaction of its own; a refused one does not stop the others."""
        taken = Taken()
        waiting = self._streams()
        # Twice: a stream may note the head of one that comes later.
        for _ in range(2):
            refused = []
            for stream in waiting:
                try:
                    with self._transaction(stream.name) as locks:
                        part = self._take_stream(stream, locks)
                except RefusedError as error:
                    refused.append((stream, error))
                else:
                    self._note(taken, stream, part)
            waiting = [stream for stream, _ in refused]
        taken.refused = [error for _, error in refused]
        with immediate(self.connection):
            self._erase(taken)
        return taken

    def _together(self) -> Taken:
        taken = Taken()
        with self._transaction("the file") as locks:
            for stream in self._streams():
                self._note(taken, stream, self._take_stream(stream, locks))
            self._erase(taken)
        return taken

    @contextmanager
    def _transaction(self, what: str) -> Iterator[ExitStack]:
        """A transaction that only commits if all claims hold, and that updates the tables.

        Yields a stack of locks, which are released after the commit: a process that resumes a run
        sees all of it.

        Raises:
            RefusedError: A claim does not hold, or a table cannot be computed.
        """
        # The claims of a stream that is refused halfway are dropped: they do not affect the next
        # one.
        self._claimed.clear()
        with ExitStack() as locks, immediate(self.connection):
            yield locks
            for stream, about, head in self._claimed:
                if not self._has(about, head):
                    reason = f"it notes an end of {about} that this log does not have"
                    raise RefusedError(stream, "unsound", reason)
            before = read_states(self.connection)
            self.projector.fold()
            for name, state in read_states(self.connection).items():
                if state.error and not before[name].error:
                    reason = f"the table {name!r} cannot be computed from it: {state.error}"
                    raise RefusedError(what, "unsound", reason)

    def _note(self, taken: Taken, stream: _Stream, part: Taken) -> None:
        """Note what was taken of one stream."""
        self._accepted.add(stream.name)
        taken.known += part.known - self._begin(stream.name).version
        taken.erased += part.erased
        taken.filled += part.filled
        if part.known < stream.version:
            taken.streams[stream.name] = stream.version - part.known

    def _erase(self, taken: Taken) -> None:
        """Erase what was erased there, according to events that are here now.

        Events of a refused stream are not trusted, including its erasures.
        """
        with translated(self.source_path):
            gone = erased_by_log(self.source, self.erasures, self._accepted)
        withheld = self._withheld()
        taken.erased += len(empty_rows(self.connection, gone))
        taken.withheld = self._withheld()
        # What was never here was not erased here.
        taken.erased -= withheld - taken.withheld

    def _streams(self) -> list[_Stream]:
        query = "SELECT name, version, head, sealed FROM streams ORDER BY id"
        with translated(self.source_path):
            rows = self.source.execute(query).fetchall()
        return [_Stream(name, version, head, bool(sealed)) for name, version, head, sealed in rows]

    def _take_stream(self, stream: _Stream, locks: ExitStack) -> Taken:
        """Append the missing events of a stream; compare existing ones, and fill their gaps."""
        try:
            require_name("stream", stream.name)
            sound = type(stream.version) is int and stream.version > 0
            sound = sound and type(stream.head) is bytes
        except ValueError:
            sound = False
        if not sound:
            reason = "its record is not in the stored form"
            raise RefusedError(str(stream.name), "unsound", reason)
        number, version, sealed = self.connection.execute(
            "SELECT id, version, sealed FROM streams WHERE name = ?", (stream.name,)
        ).fetchone() or (None, 0, 0)
        part, self._at = Taken(known=min(version, stream.version)), None
        begin = self._begin(stream.name)
        if not 0 <= begin.version <= stream.version:
            reason = "it begins behind its end"
            raise RefusedError(stream.name, "unsound", reason)
        if version < begin.version:
            reason = f"this history does not have the first {begin.version:,} events of it"
            raise RefusedError(stream.name, "behind", reason)
        if begin.version and begin.hash != hash_at(self.connection, stream.name, begin.version):
            reason = f"it diverged: event {begin.version:,} is another one here"
            raise RefusedError(stream.name, "apart", reason)
        if part.known < stream.version:
            if is_held(self.source_path, stream.name):
                reason = "a process is still writing it"
                raise RefusedError(stream.name, "going on", reason)
            try:
                locks.enter_context(StreamLock(self.log.path, stream.name))
            except LockHeldError as error:
                raise RefusedError(stream.name, "going on", str(error)) from None
        try:
            self._compare(stream, begin, part, is_sealed=bool(sealed and part.known == version))
            if part.known < stream.version:
                self._append(stream, number, part)
        except _TextError as error:
            raise RefusedError(stream.name, "unsound", str(error), ref=error.ref) from None
        except (ValueError, LookupError, TypeError, sqlite3.IntegrityError) as error:
            raise RefusedError(stream.name, "unsound", str(error), self._at) from None
        return part

    def _begin(self, stream: str) -> Begin:
        return self.begins.get(stream, _WHOLE)

    def _compare(self, stream: _Stream, begin: Begin, part: Taken, *, is_sealed: bool) -> None:
        """Hold events to those that are here: their last hash is, but that is only what it says.

        `is_sealed` says that the stream takes nothing here behind them.

        Raises:
            ValueError: They are not what was written.
            RefusedError: They went on apart.
        """
        name, ours_last = stream.name, hash_at(self.connection, stream.name, part.known)
        with translated(self.source_path):
            is_apart = hash_at(self.source, name, part.known) != ours_last
        for after in range(begin.version, part.known, _PIECE):
            count = min(_PIECE, part.known - after)
            theirs = self._events(name, after, count)
            ours = events_after(self.connection, name, after, count)
            for version, (one, other) in enumerate(zip_longest(ours, theirs), after + 1):
                self._at = version
                if one is None or other is None or one[1:] != other[1:]:
                    if is_apart:
                        reason = f"it diverged: from event {version:,} on, the events differ"
                        raise RefusedError(name, "apart", reason)
                    message = f"event {version:,} is not the one that is here under the same hash"
                    raise ValueError(message)
            self._take_texts(refs_in(event.json for event in theirs), part)
        self._at = None
        if part.known == stream.version and stream.head != ours_last:
            raise ValueError(_ANOTHER_END)
        if part.known == stream.version and stream.sealed != is_sealed:
            message = "the same events end here in another way: sealed, or not"
            raise ValueError(message)

    def _append(self, stream: _Stream, number: int | None, part: Taken) -> None:
        """Append the events that are not here, with their texts, piece by piece.

        Raises:
            ValueError: Something is not as it must be.
            sqlite3.IntegrityError: An event is recorded in another stream.
        """
        is_new = number is None
        if is_new:
            number = 1 + (self._value("SELECT max(id) FROM streams") or 0)
        version, head = part.known, GENESIS
        if version:
            head = hash_at(self.connection, stream.name, version) or GENESIS
        position = last_position(self.connection)
        while piece := self._events(stream.name, version, _PIECE):
            refs: dict[str, None] = {}
            rows = []
            for event in piece:
                version, position = version + 1, position + 1
                self._at = version
                refs.update(dict.fromkeys(_refs_of_sound(event, version)))
                head = event.hash_after(head, seal=stream.sealed and version == stream.version)
                if head != event.raw_hash:
                    message = f"event {version:,} does not match its hash"
                    raise ValueError(message)
                self._look_at(event._replace(position=position), part)
                rows.append(
                    (position, event.raw_id, number, version, self._type(event.type), *event[5:])
                )
            self._take_texts(list(refs), part)
            insert_rows(self.connection, INSERT_EVENTS, rows)
        if (version, head) != (stream.version, stream.head):
            raise ValueError(_ANOTHER_END)
        self.connection.execute(
            "INSERT INTO streams (version, head, sealed, id, name) VALUES (?, ?, ?, ?, ?)"
            if is_new
            else "UPDATE streams SET version = ?, head = ?, sealed = ? WHERE id = ? AND name = ?",
            (version, head, stream.sealed, number, stream.name),
        )

    def _look_at(self, event: RecordedEvent, part: Taken) -> None:
        """Determine the meaning of an event: whether it is taken, what it notes and erases."""
        self.accept(event)
        if claim := self.claims.get(event.type):
            self._claimed += [
                (event.stream, about, str(head)) for about, head in claim(event).items()
            ]
        if erasure := self.erasures.get(event.type):
            part.erased += len(empty_rows(self.connection, erasure(event).refs or ()))

    def _take_texts(self, refs: Sequence[str], part: Taken) -> None:
        """Store texts that are not here, and fill what is withheld; one that was erased stays so.

        Raises:
            ValueError: A text is not what its reference says, or there is nothing of it.
        """
        for start in range(0, len(refs), _PIECE):
            some = refs[start : start + _PIECE]
            query = "SELECT ref, salt FROM contents"
            query += " WHERE ref IN (SELECT value FROM json_each(?))"
            here = dict(self.connection.execute(query, (json.dumps(some),)).fetchall())
            with translated(self.source_path):
                theirs = stored_texts(self.source, some).fetchall()
            rows = [_checked(ref, salt, body) for ref, salt, _, body in theirs]
            if missing := set(some).difference(row[0] for row in rows):
                raise _TextError(min(missing), "is missing")
            if new := [row for row in rows if row[0] not in here]:
                insert_rows(self.connection, INSERT_TEXTS, new)
            filled = [
                (*content, ref)
                for ref, *content in rows
                if content[-1] is not None and here.get(ref) == WITHHELD
            ]
            if filled:
                self._fill(filled)
                part.filled += len(filled)

    def _fill(self, rows: Sequence[tuple[object, ...]]) -> None:
        """Fill rows with texts whose references were checked.

        The trigger that refuses it to every other program is taken away meanwhile, inside the open
        transaction: SQL cannot compute that hash.
        """
        trigger = self._value("SELECT sql FROM sqlite_master WHERE name = 'contents_update'")
        self.connection.execute("DROP TRIGGER IF EXISTS contents_update")
        self.connection.executemany(
            "UPDATE contents SET salt = ?, digest = ?, body = ? WHERE ref = ?", rows
        )
        if trigger:
            self.connection.execute(trigger)

    def _has(self, stream: str, head: str) -> bool:
        """Whether an event of a stream that is here has a hash, `sha256:<hex>`."""
        try:
            stored = stored_hash(head)
        except ValueError:
            return False
        query = (
            "SELECT 1 FROM events WHERE stream = (SELECT id FROM streams WHERE name = ?)"
            " AND hash = ? ORDER BY version DESC LIMIT 1"
        )
        return self._value(query, stream, stored) is not None

    def _type(self, name: str) -> int:
        """The number of an event type, which is new here perhaps."""
        number = self._value("SELECT id FROM event_types WHERE name = ?", name)
        if number is None:
            insert = "INSERT INTO event_types (name) VALUES (?)"
            number = self.connection.execute(insert, (name,)).lastrowid
        return int(number)

    def _withheld(self) -> int:
        """How many of the new texts are withheld."""
        query = "SELECT count(*) FROM contents WHERE rowid > ? AND salt = ?"
        return int(self._value(query, self._last_text, WITHHELD))

    def _value(self, query: str, *parameters: object) -> Any:
        """The first value of a query in the log; None if there is none."""
        row = self.connection.execute(query, parameters).fetchone()
        return row[0] if row else None

    def _events(self, stream: str, after: int, limit: int) -> list[RecordedEvent]:
        """The next events of a stream of the source after a version."""
        with translated(self.source_path):
            return events_after(self.source, stream, after, limit)


def _checked(ref: str, salt: Any, body: Any) -> tuple[Any, ...]:
    """The row of a text: reference, salt, digest and body; withheld where there is no body.

    Raises:
        ValueError: It is not what its reference says.
    """
    if body is None:
        # If it was erased there, that is reported once it is known what is taken.
        return ref, WITHHELD, None, None
    if not salt or (type(salt), type(body)) != (bytes, str) or scrub(body) != body:
        raise _TextError(ref, "is not in the stored form")
    raw = body.encode()
    if ref_of(salt, raw) != ref:
        raise _TextError(ref, "does not match its reference")
    return ref, salt, sha256(raw).digest(), body


def _refs_of_sound(event: RecordedEvent, version: int) -> list[str]:
    """The texts that an event refers to, if an append would have stored this event.

    Raises:
        ValueError: It would not.
    """
    values = (event.raw_id, event.schema, event.at, event.json, event.raw_hash)
    if (
        tuple(map(type, values)) != (bytes, int, str, str, bytes)
        or event.version != version
        or len(event.raw_id) != _UUID_BYTES
        or not is_timestamp(event.at)
    ):
        message = f"event {version:,} is not in the stored form"
        raise ValueError(message)
    try:
        submitted = json.loads(event.json, object_hook=_as_submitted)
        new = NewEvent(event.type, submitted, event.schema, event.subject)
        filled = new.fill(f'{{"$ref":"{ref}"}}' for ref in new.texts)
    except (ValueError, RecursionError, TypeError) as error:
        message = f"event {version:,}: {error}"
        raise ValueError(message) from None
    if filled != event.json:
        message = f"event {version:,}: data is not in canonical form"
        raise ValueError(message)
    return new.texts


def _as_submitted(members: dict[str, Any]) -> Any:
    """Put a `Text` in the place of each reference: so a payload is checked as when submitted."""
    if "$ref" not in members:
        return members
    ref = members["$ref"]
    if len(members) != 1 or not isinstance(ref, str) or not _TEXT_REF.fullmatch(ref):
        message = "$ref is not a reference to a text"
        raise ValueError(message)
    return Text(ref)
