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
from pathlib import Path
from typing import Any, Literal

from kindlm_store.append import WITHHELD, Appender, insert_rows, ref_of
from kindlm_store.canonical import GENESIS, event_hash, stored_hash
from kindlm_store.database import immediate, snapshot, translated
from kindlm_store.erasing import (
    Erasures,
    empty_rows,
    erased_by_log,
    give_back,
    rebuild_index,
    refs_in,
)
from kindlm_store.locks import is_held, stream_lock
from kindlm_store.log import EventLog
from kindlm_store.new_event import Append, NewEvent, Text, is_timestamp, require_name, scrub
from kindlm_store.projecting import Projector, read_states
from kindlm_store.reading import RecordedEvent, events_after, hash_at, last_position, stored_texts
from kindlm_store.store_errors import LockHeldError, StoreError
from kindlm_store.verification import Claims

Accept = Callable[[RecordedEvent], None]
"""Checks an event before it is merged; raises ValueError, with the reason, to refuse it."""

Begin = tuple[int, bytes]
"""Version and tagged hash of the event after which a stream begins in a source."""

_Stream = tuple[str, int, bytes, object]
"""The record of a stream, as stored: name, version, head, and whether it is sealed."""

Note = Callable[[Mapping[str, int]], Append]
"""Makes an append about the streams with new events, given by name with their last version."""

_STREAMS = """
SELECT name, version, head, sealed FROM streams
 ORDER BY id IN (SELECT stream FROM events WHERE type IN (
     SELECT id FROM event_types WHERE name IN (SELECT value FROM json_each(?)))), id
"""

_NOT_AS_STORED = "its record is not in the stored form"

_PIECE = 500
_TEXT_REF = re.compile(r"[A-Za-z0-9_-]{32}")


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
        about: The stream that it notes a head of, which this log does not have.
    """

    stream: str
    kind: Literal["going on", "apart", "behind", "unsound"]
    reason: str
    version: int | None = None
    ref: str | None = None
    about: str | None = None

    def __str__(self) -> str:
        return f"{self.stream}: {self.reason}"


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


@dataclass(eq=False, slots=True)
class Merge:
    """Merges streams of a source log into a log, and folds their events.

    The `source` is a file, or a `scratch_log`; `source_path` is for locks and errors. The log must
    have all heads that events of the source claim after the merge. `begins` has the event after
    which a stream begins in the source, if its first events are not there.
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
    taken: Taken = field(default_factory=Taken, init=False)
    """What was merged so far, also if `take` raised an error."""
    _claimed: list[tuple[str, str, str]] = field(default_factory=list, init=False)
    _accepted: set[str] = field(default_factory=set, init=False)
    _at: int | None = field(default=None, init=False)
    """The event that is being checked."""

    def take(self, *, together: bool = False, note: Note | None = None) -> Taken:
        """Merge each stream in its own transaction, or, if `together`, all of them or none.

        With `together`, the append of `note` is written if there are new events, or nothing is, and
        a refused stream raises `RefusedError`. Raises `OpenError` if the file cannot be written, or
        the source cannot be read.
        """

        def run(connection: sqlite3.Connection, projector: Projector) -> Taken:
            self.connection, self.projector = connection, projector
            last_text = self._first_value("SELECT max(rowid) FROM contents") or 0
            with snapshot(self.source, self.source_path):
                if together:
                    self._together(note)
                else:
                    self._one_by_one()
            query = "SELECT count(*) FROM contents WHERE rowid > ? AND salt = ?"
            self.taken.withheld = self._first_value(query, last_text, WITHHELD)
            if self.taken.erased:
                give_back(connection)
            return self.taken

        return self.log.run(run)

    def _one_by_one(self) -> None:
        taken = self.taken
        for stream in self._streams():
            before = taken.erased, taken.filled
            try:
                with self._transaction(stream[0]) as locks:
                    known = self._take_stream(stream, locks)
            except RefusedError as error:
                taken.refused.append(error)
                taken.erased, taken.filled = before
            else:
                self._count(stream, known)
        with immediate(self.connection):
            self._erase_as_in_source()

    def _together(self, note: Note | None) -> None:
        with self._transaction("the file") as locks:
            streams = self._streams()
            for stream in streams:
                self._count(stream, self._take_stream(stream, locks))
            self._erase_as_in_source()
            if note and (new := self.taken.streams):
                grown = {name: version for name, version, *_ in streams if name in new}
                Appender(self.connection).write([[self.log.redacted(note(grown))]])

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
                    raise RefusedError(stream, "unsound", reason, about=about)
            before = read_states(self.connection)
            self.projector.fold()
            for name, state in read_states(self.connection).items():
                if state.error and not before[name].error:
                    reason = f"the table {name!r} cannot be computed from it: {state.error}"
                    raise RefusedError(what, "unsound", reason)

    def _count(self, stream: _Stream, known: int) -> None:
        name, version, *_ = stream
        self._accepted.add(name)
        self.taken.known += known - self._begin(name)[0]
        if known < version:
            self.taken.streams[name] = version - known

    def _erase_as_in_source(self) -> None:
        """Erase the texts that are erased in the source, if an event of a merged stream says so."""
        with translated(self.source_path):
            gone = erased_by_log(self.source, self.erasures, self._accepted)
        self.taken.erased += len(empty_rows(self.connection, gone))
        if self.taken.erased:
            rebuild_index(self.connection)

    def _streams(self) -> list[_Stream]:
        """Return the streams of the source; those that note heads of others come last."""
        with translated(self.source_path):
            return self.source.execute(_STREAMS, (json.dumps([*self.claims]),)).fetchall()

    def _take_stream(self, stream: _Stream, locks: ExitStack) -> int:
        """Append the missing events of a stream, and take the missing texts of all.

        Return how many events were here already. Any error in the source is a `RefusedError`.
        """
        name, version, head, _ = stream
        refused = partial(RefusedError, str(name))
        try:
            require_name("stream", name)
        except ValueError:
            raise refused("unsound", _NOT_AS_STORED) from None
        if (type(version), type(head)) != (int, bytes):
            raise refused("unsound", _NOT_AS_STORED)
        begin, begin_hash = self._begin(name)
        if not 0 <= begin <= version:
            raise refused("unsound", "it begins after its end")
        recorded = Appender(self.connection).stream(name).version
        if recorded < begin:
            reason = f"its events up to number {begin:,} are not in this history"
            raise refused("behind", reason)
        if begin and begin_hash != hash_at(self.connection, name, begin):
            raise refused("apart", f"it diverged: event {begin:,} is different here")
        known, self._at = min(recorded, version), None
        if known < version:
            if is_held(self.source_path, name):
                raise refused("going on", "a process is still writing it")
            try:
                locks.enter_context(stream_lock(self.log.path, name))
            except LockHeldError as error:
                raise refused("going on", str(error)) from None
        try:
            self._take_events(stream, known)
        except (ValueError, LookupError, TypeError, sqlite3.IntegrityError) as error:
            raise refused("unsound", str(error), self._at) from None
        return known

    def _begin(self, stream: str) -> Begin:
        return self.begins.get(stream, (0, GENESIS))

    def _take_events(self, stream: _Stream, known: int) -> None:
        """Check the events of a stream, piece by piece, and append those after the known ones."""
        name, version, end, sealed = stream
        appender = Appender(self.connection)
        state, position = appender.stream(name), last_position(self.connection)
        at, head = self._begin(name)
        while piece := self._events(name, at, _PIECE):
            here = events_after(self.connection, name, at, len(piece))
            hashes = {event.version: event.raw_hash for event in here}
            rows = []
            for event in piece:
                at += 1
                self._at = at
                if not (event.is_in_form and event.version == at and is_timestamp(event.at)):
                    raise ValueError(f"event {at:,} is not in the stored form")
                head = event_hash(head, event, seal=bool(sealed) and at == version)
                if head != event.raw_hash:
                    raise ValueError(f"event {at:,} does not match its hash")
                if at > known:
                    _require_canonical(event)
                    position += 1
                    self._look_at(event._replace(position=position))
                    number, type_id = appender.number(state), appender.type_id(event.type)
                    rows.append((position, event.raw_id, number, at, type_id, *event[5:]))
                elif hashes.get(at) != head:
                    reason = f"it diverged: from event {at:,} on, the events differ"
                    raise RefusedError(name, "apart", reason)
            self._take_texts(name, refs_in(event.json for event in piece))
            if rows:
                insert_rows(self.connection, "events", rows)
        self._at = None
        if (at, head) != (version, end):
            raise ValueError("it does not end where its record states")
        if known < version:
            state.version, state.head, state.sealed = at, head, bool(sealed)
            appender.save(state)

    def _look_at(self, event: RecordedEvent) -> None:
        """Check a new event, note its claims, and apply its erasure."""
        self.accept(event)
        if claim := self.claims.get(event.type):
            noted = claim(event).items()
            self._claimed += [(event.stream, about, str(head)) for about, head in noted]
        if erasure := self.erasures.get(event.type):
            self.taken.erased += len(empty_rows(self.connection, erasure(event) or ()))

    def _take_texts(self, stream: str, refs: Sequence[str]) -> None:
        """Store missing texts, and fill withheld ones; erased texts stay erased."""
        for start in range(0, len(refs), _PIECE):
            piece = refs[start : start + _PIECE]
            here = {ref: salt for ref, salt, _, _ in stored_texts(self.connection, piece)}
            with translated(self.source_path):
                in_source = {row[0]: row for row in stored_texts(self.source, piece)}
            rows = [_checked(stream, ref, in_source.get(ref)) for ref in piece]
            if new := [row for row in rows if row[0] not in here]:
                insert_rows(self.connection, "contents", new)
            arrived = (row for row in rows if row[3] is not None and here.get(row[0]) == WITHHELD)
            if filled := [(*content, ref) for ref, *content in arrived]:
                self._fill(filled)
                self.taken.filled += len(filled)

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

    def _first_value(self, query: str, *parameters: object) -> Any:
        row = self.connection.execute(query, parameters).fetchone()
        return row[0] if row else None

    def _events(self, stream: str, after: int, limit: int) -> list[RecordedEvent]:
        with translated(self.source_path):
            return events_after(self.source, stream, after, limit)


def _checked(stream: str, ref: str, stored: Sequence[Any] | None) -> tuple[Any, ...]:
    """Return the row of a text: reference, salt, digest and body; withheld without a body."""
    if stored is not None:
        _, salt, _, body = stored
        if body is None:
            # `Merge` empties those that were erased in the source.
            return ref, WITHHELD, None, None
        if salt and (type(salt), type(body)) == (bytes, str) and scrub(body) == body:
            raw = body.encode()
            if ref_of(salt, raw) == ref:
                return ref, salt, sha256(raw).digest(), body
    reason = f"the text {ref} {'is missing' if stored is None else 'was changed'}"
    raise RefusedError(stream, "unsound", reason, ref=ref)


def _require_canonical(event: RecordedEvent) -> None:
    """Raise `ValueError` for an event that an append would not have stored."""
    try:
        submitted = json.loads(event.json, object_hook=_as_submitted)
        new = NewEvent(event.type, submitted, event.schema, event.subject)
        filled = new.fill(f'{{"$ref":"{ref}"}}' for ref in new.texts)
    except (ValueError, RecursionError, TypeError) as error:
        raise ValueError(f"event {event.version:,}: {error}") from None
    if filled != event.json:
        raise ValueError(f"event {event.version:,}: data is not in canonical form")


def _as_submitted(members: dict[str, Any]) -> Any:
    """Replace a reference by a `Text`, so that a payload is checked as if it were submitted."""
    if "$ref" not in members:
        return members
    ref = members["$ref"]
    if len(members) != 1 or not isinstance(ref, str) or not _TEXT_REF.fullmatch(ref):
        raise ValueError("$ref is not a reference to a text")
    return Text(ref)
