"""Merges streams of another log: checks each stream, then appends its missing events unchanged.

A stream that exists in both logs must begin with the same events. A stream that continues
differently in the two logs is refused as a whole. The order of merges makes no difference, and a
repeated merge changes nothing.

The merged log has every text that one of the logs has, except those that an event erased. A text
that neither has is withheld.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kindlm_store.append import INSERT_EVENTS, INSERT_TEXTS, WITHHELD, Appender, insert_rows, ref_of
from kindlm_store.canonical import GENESIS, stored_hash
from kindlm_store.database import immediate, snapshot, translated
from kindlm_store.erasing import Erasures, empty_rows, erased_by_log, give_back, refs_in
from kindlm_store.locks import StreamLock, is_held
from kindlm_store.log import EventLog
from kindlm_store.new_event import Append, NewEvent, Text, is_timestamp, require_name, scrub
from kindlm_store.projecting import Projector, read_states
from kindlm_store.reading import RecordedEvent, events_after, hash_at, last_position, stored_texts
from kindlm_store.store_errors import LockHeldError, StoreError
from kindlm_store.verification import Claims

Accept = Callable[[RecordedEvent], None]
"""Checks an event before it is merged; raises ValueError, with the reason, to refuse it."""

Note = Callable[[Mapping[str, int]], Append]
"""Makes an append about the streams with new events, given by name with their last version."""

_ANOTHER_END = "it does not end where its record states"
_NOT_AS_STORED = "its record is not in the stored form"

_PIECE = 500
_UUID_BYTES = 16
_TEXT_REF = re.compile(r"[A-Za-z0-9_-]{32}")

RefusalKind = Literal["going on", "apart", "behind", "unsound"]


@dataclass(eq=False)
class RefusedError(StoreError):
    """A stream was refused, and nothing of it was merged.

    Attributes:
        stream: Name of the stream.
        kind: "going on" if a process is writing it, "apart" if it continued differently in both
            logs, "behind" if earlier events are missing here, "unsound" if it is invalid.
        reason: Why, in words.
        version: The invalid event, if it is a single one.
        ref: The invalid text, if it is a single one.
    """

    stream: str
    kind: RefusalKind
    reason: str
    version: int | None = None
    ref: str | None = None

    def __str__(self) -> str:
        return f"{self.stream}: {self.reason}"


class Begin(NamedTuple):
    """The event after which a stream begins in a source that lacks its first events.

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
    """The outcome of a merge.

    Attributes:
        streams: Streams with new events → how many.
        known: Number of events that were here already.
        erased: Number of texts that were erased here, as in the source.
        filled: Number of texts that were withheld here, and came with the merge.
        withheld: Number of new texts that the source does not have either.
        refused: Streams that were refused, with the reasons.
    """

    streams: dict[str, int] = field(default_factory=dict)
    known: int = 0
    erased: int = 0
    filled: int = 0
    withheld: int = 0
    refused: list[RefusedError] = field(default_factory=list)

    @property
    def added(self) -> int:
        """Number of new events."""
        return sum(self.streams.values())


class _Stream(NamedTuple):
    """The record of a stream, as stored."""

    name: str
    version: int
    head: bytes
    sealed: bool


@dataclass(eq=False, slots=True)
class Merge:
    """Merges streams of a source log into a log, and folds their events.

    Attributes:
        log: The log that receives the events.
        source: A connection to the source: a file, or a `scratch_log`.
        source_path: Its file, for locks and errors.
        accept: Checks each event before it is merged.
        claims: Event type → heads of streams that an event of it notes. The log must have them
            after the merge.
        erasures: Event type → the erasure that an event of it records.
        begins: Stream → the event after which it begins in the source, if its first events are not
            there.
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

    def take(self, *, together: bool = False, note: Note | None = None) -> Taken:
        """Merge each stream in its own transaction, or, if `together`, all of them or none.

        With `together`, the append of `note` is written if there are new events, or nothing is.

        Raises:
            RefusedError: A stream was refused, so nothing was merged `together`.
            OpenError: The file cannot be written, or the source cannot be read.
        """

        def run(connection: sqlite3.Connection, projector: Projector) -> Taken:
            self.connection, self.projector = connection, projector
            self._last_text = self._first_value("SELECT max(rowid) FROM contents") or 0
            with snapshot(self.source, self.source_path):
                taken = self._together(note) if together else self._one_by_one()
            if taken.erased:
                give_back(connection)
            return taken

        return self.log.run(run)

    def _one_by_one(self) -> Taken:
        taken = Taken()
        waiting = self._streams()
        # Twice, since a stream may note the head of a later stream.
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

    def _together(self, note: Note | None) -> Taken:
        taken = Taken()
        with self._transaction("the file") as locks:
            streams = self._streams()
            for stream in streams:
                self._note(taken, stream, self._take_stream(stream, locks))
            self._erase(taken)
            if note and taken.streams:
                grown = {each.name: each.version for each in streams if each.name in taken.streams}
                Appender(self.connection).write([[self.log.redacted(note(grown))]])
        return taken

    @contextmanager
    def _transaction(self, what: str) -> Iterator[ExitStack]:
        """Run a transaction that folds the events at its end, and commits if all claims hold.

        Yield a stack of locks. They are released after the commit, so that a process that resumes a
        run sees all of it.
        """
        # A refused stream may have left claims.
        self._claimed.clear()
        with ExitStack() as locks, immediate(self.connection):
            yield locks
            for stream, about, head in self._claimed:
                if not self._has_event(about, head):
                    reason = f"it notes a head of {about} that this log does not have"
                    raise RefusedError(stream, "unsound", reason)
            before = read_states(self.connection)
            self.projector.fold()
            for name, state in read_states(self.connection).items():
                if state.error and not before[name].error:
                    reason = f"the table {name!r} cannot be computed from it: {state.error}"
                    raise RefusedError(what, "unsound", reason)

    def _note(self, taken: Taken, stream: _Stream, part: Taken) -> None:
        self._accepted.add(stream.name)
        taken.known += part.known - self._begin(stream.name).version
        taken.erased += part.erased
        taken.filled += part.filled
        if part.known < stream.version:
            taken.streams[stream.name] = stream.version - part.known

    def _erase(self, taken: Taken) -> None:
        """Erase the texts that are erased in the source, if an event of a merged stream says so."""
        with translated(self.source_path):
            gone = erased_by_log(self.source, self.erasures, self._accepted)
        withheld = self._count_new_withheld()
        taken.erased += len(empty_rows(self.connection, gone))
        taken.withheld = self._count_new_withheld()
        # A new text that was withheld until now does not count.
        taken.erased -= withheld - taken.withheld

    def _streams(self) -> list[_Stream]:
        query = "SELECT name, version, head, sealed FROM streams ORDER BY id"
        with translated(self.source_path):
            rows = self.source.execute(query).fetchall()
        return [_Stream(name, version, head, bool(sealed)) for name, version, head, sealed in rows]

    def _take_stream(self, stream: _Stream, locks: ExitStack) -> Taken:
        """Append the missing events of a stream; compare the others, and take their missing texts.

        Any error in the source is a `RefusedError`.
        """
        name, begin = stream.name, self._begin(stream.name)
        refused = partial(RefusedError, str(name))
        try:
            require_name("stream", name)
        except ValueError:
            raise refused("unsound", _NOT_AS_STORED) from None
        if (type(stream.version), type(stream.head)) != (int, bytes) or stream.version < 1:
            raise refused("unsound", _NOT_AS_STORED)
        if not 0 <= begin.version <= stream.version:
            raise refused("unsound", "it begins after its end")
        here = Appender(self.connection).stream(name)
        if here.version < begin.version:
            reason = f"its events up to number {begin.version:,} are not in this history"
            raise refused("behind", reason)
        if begin.version and begin.hash != hash_at(self.connection, name, begin.version):
            raise refused("apart", f"it diverged: event {begin.version:,} is different here")
        part, self._at = Taken(known=min(here.version, stream.version)), None
        is_longer = part.known < stream.version
        if is_longer:
            if is_held(self.source_path, name):
                raise refused("going on", "a process is still writing it")
            try:
                locks.enter_context(StreamLock(self.log.path, name))
            except LockHeldError as error:
                raise refused("going on", str(error)) from None
        try:
            self._compare(stream, begin, part, is_sealed=here.sealed and part.known == here.version)
            if is_longer:
                self._append(stream, part)
        except _TextError as error:
            raise refused("unsound", str(error), ref=error.ref) from None
        except (ValueError, LookupError, TypeError, sqlite3.IntegrityError) as error:
            raise refused("unsound", str(error), self._at) from None
        return part

    def _begin(self, stream: str) -> Begin:
        return self.begins.get(stream, _WHOLE)

    def _compare(self, stream: _Stream, begin: Begin, part: Taken, *, is_sealed: bool) -> None:
        """Compare the events that both logs have, and not only the hash of the last one.

        `is_sealed` is whether the stream is sealed here after these events.
        """
        name, last_hash = stream.name, hash_at(self.connection, stream.name, part.known)
        with translated(self.source_path):
            is_apart = hash_at(self.source, name, part.known) != last_hash
        for after in range(begin.version, part.known, _PIECE):
            count = min(_PIECE, part.known - after)
            in_source = self._events(name, after, count)
            here = events_after(self.connection, name, after, count)
            for version, (one, other) in enumerate(zip_longest(here, in_source), after + 1):
                self._at = version
                if one is None or other is None or one[1:] != other[1:]:
                    if not is_apart:
                        what = "differs from the one here with the same hash"
                        raise ValueError(f"event {version:,} {what}")
                    reason = f"it diverged: from event {version:,} on, the events differ"
                    raise RefusedError(name, "apart", reason)
            self._take_texts(refs_in(event.json for event in in_source), part)
        self._at = None
        if part.known == stream.version and stream.head != last_hash:
            raise ValueError(_ANOTHER_END)
        if part.known == stream.version and stream.sealed != is_sealed:
            raise ValueError("only one of the logs has the stream sealed")

    def _append(self, stream: _Stream, part: Taken) -> None:
        """Append the missing events, with their texts, piece by piece."""
        appender = Appender(self.connection)
        state = appender.stream(stream.name)
        number, position = appender.number(state), last_position(self.connection)
        while piece := self._events(stream.name, state.version, _PIECE):
            refs: dict[str, None] = {}
            rows = []
            for event in piece:
                position += 1
                self._at = state.version = version = state.version + 1
                refs.update(dict.fromkeys(_refs_of_sound(event, version)))
                state.sealed = stream.sealed and version == stream.version
                state.head = event.hash_after(state.head, seal=state.sealed)
                if state.head != event.raw_hash:
                    raise ValueError(f"event {version:,} does not match its hash")
                self._look_at(event._replace(position=position), part)
                type_id = appender.type_id(event.type)
                rows.append((position, event.raw_id, number, version, type_id, *event[5:]))
            self._take_texts(list(refs), part)
            insert_rows(self.connection, INSERT_EVENTS, rows)
        if (state.version, state.head) != (stream.version, stream.head):
            raise ValueError(_ANOTHER_END)
        appender.save(state)

    def _look_at(self, event: RecordedEvent, part: Taken) -> None:
        """Check a new event, note its claims, and apply its erasure."""
        self.accept(event)
        if claim := self.claims.get(event.type):
            noted = claim(event).items()
            self._claimed += [(event.stream, about, str(head)) for about, head in noted]
        if erasure := self.erasures.get(event.type):
            part.erased += len(empty_rows(self.connection, erasure(event).refs or ()))

    def _take_texts(self, refs: Sequence[str], part: Taken) -> None:
        """Store missing texts, and fill withheld ones; erased texts stay erased."""
        for start in range(0, len(refs), _PIECE):
            piece = refs[start : start + _PIECE]
            here = {ref: salt for ref, salt, _, _ in stored_texts(self.connection, piece)}
            with translated(self.source_path):
                in_source = stored_texts(self.source, piece).fetchall()
            rows = [_checked(ref, salt, body) for ref, salt, _, body in in_source]
            if missing := set(piece).difference(row[0] for row in rows):
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

        A trigger forbids this, since SQL cannot check the hash. It is dropped meanwhile, inside the
        open transaction.
        """
        trigger = self._first_value("SELECT sql FROM sqlite_master WHERE name = 'contents_update'")
        self.connection.execute("DROP TRIGGER IF EXISTS contents_update")
        self.connection.executemany(
            "UPDATE contents SET salt = ?, digest = ?, body = ? WHERE ref = ?", rows
        )
        if trigger:
            self.connection.execute(trigger)

    def _has_event(self, stream: str, head: str) -> bool:
        try:
            stored = stored_hash(head)
        except ValueError:
            return False
        query = (
            "SELECT 1 FROM events WHERE stream = (SELECT id FROM streams WHERE name = ?)"
            " AND hash = ? ORDER BY version DESC LIMIT 1"
        )
        return self._first_value(query, stream, stored) is not None

    def _count_new_withheld(self) -> int:
        query = "SELECT count(*) FROM contents WHERE rowid > ? AND salt = ?"
        return int(self._first_value(query, self._last_text, WITHHELD))

    def _first_value(self, query: str, *parameters: object) -> Any:
        row = self.connection.execute(query, parameters).fetchone()
        return row[0] if row else None

    def _events(self, stream: str, after: int, limit: int) -> list[RecordedEvent]:
        with translated(self.source_path):
            return events_after(self.source, stream, after, limit)


def _checked(ref: str, salt: Any, body: Any) -> tuple[Any, ...]:
    """Return the row of a text: reference, salt, digest and body; withheld without a body."""
    if body is None:
        # `Merge._erase` empties those that were erased in the source.
        return ref, WITHHELD, None, None
    if not salt or (type(salt), type(body)) != (bytes, str) or scrub(body) != body:
        raise _TextError(ref, "is not in the stored form")
    raw = body.encode()
    if ref_of(salt, raw) != ref:
        raise _TextError(ref, "does not match its reference")
    return ref, salt, sha256(raw).digest(), body


def _refs_of_sound(event: RecordedEvent, version: int) -> list[str]:
    """Return the texts that an event refers to, if an append would have stored the event."""
    values = (event.raw_id, event.schema, event.at, event.json, event.raw_hash)
    if (
        tuple(map(type, values)) != (bytes, int, str, str, bytes)
        or event.version != version
        or len(event.raw_id) != _UUID_BYTES
        or not is_timestamp(event.at)
    ):
        raise ValueError(f"event {version:,} is not in the stored form")
    try:
        submitted = json.loads(event.json, object_hook=_as_submitted)
        new = NewEvent(event.type, submitted, event.schema, event.subject)
        filled = new.fill(f'{{"$ref":"{ref}"}}' for ref in new.texts)
    except (ValueError, RecursionError, TypeError) as error:
        raise ValueError(f"event {version:,}: {error}") from None
    if filled != event.json:
        raise ValueError(f"event {version:,}: data is not in canonical form")
    return new.texts


def _as_submitted(members: dict[str, Any]) -> Any:
    """Replace a reference by a `Text`, so that a payload is checked as if it were submitted."""
    if "$ref" not in members:
        return members
    ref = members["$ref"]
    if len(members) != 1 or not isinstance(ref, str) or not _TEXT_REF.fullmatch(ref):
        raise ValueError("$ref is not a reference to a text")
    return Text(ref)
