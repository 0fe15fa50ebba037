"""Erases texts permanently: empties their rows, and leaves no trace in the file or its WAL.

A row keeps its reference, so that the chain stays valid. It loses body, salt and digest, so that no
one can test whether it was a certain text. `secure_delete` overwrites what they leave in the file.

Events record erasures: an event names the texts that it erased, and wherever the event is merged,
they are erased too. An empty row without such an event was emptied by something else.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from kindlm_store.append import Appender
from kindlm_store.database import immediate, is_locked, translated, truncate_wal
from kindlm_store.reading import events_of_types, last_position

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from kindlm_store.log import EventLog
    from kindlm_store.new_event import Append
    from kindlm_store.projecting import Projector
    from kindlm_store.reading import RecordedEvent

_REF = re.compile(r'"\$ref":"([^"\\]*)"')
"""Inside a string of JSON a quotation mark is escaped: this is found as a member name only."""

_WAIT_MS = 10_000
"""So long readers may keep the WAL from being emptied."""


class Erasure(NamedTuple):
    """The record of an erasure in an event.

    Attributes:
        refs: References of the texts; None if the event is too old to name them.
        covers: Of such an event: whether it may have erased texts of a stream, by its name.
    """

    refs: Collection[str] | None
    covers: Callable[[str], bool]


Erasures = Mapping[str, Callable[["RecordedEvent"], Erasure]]
"""Event type → what an event of this type says was erased."""


class Erasable(NamedTuple):
    """Texts that can be erased.

    Attributes:
        refs: Their references.
        shared: How many more could be erased if no event of another stream referred to them.
        streams: The streams whose texts were requested; None for texts of any stream.
        until: Position of the last event that was read.
    """

    refs: frozenset[str]
    shared: int
    streams: frozenset[str] | None
    until: int


class Erased(NamedTuple):
    """The outcome of an erasure.

    Attributes:
        texts: How many texts are gone.
        emptied: Whether the WAL could be emptied. If a reader prevented it, erased content may be
            there until the last program that has the file open closes it.
    """

    texts: int
    emptied: bool


def find_erasable(
    log: EventLog,
    streams: Collection[str] | None = None,
    matches: Callable[[str], bool] | None = None,
    forgotten: Mapping[str, str] | None = None,
    evidence: str | None = None,
) -> Erasable:
    """The texts that only events of some streams refer to, and that match.

    Args:
        log: The log.
        streams: None: any.
        matches: Asked about each text; None matches all, also those that are withheld.
        forgotten: Stream → until when (UTC, as events have it) its own texts were erased before:
            what its events of that time refer to is kept no longer for its sake.
        evidence: Member of events whose text says again, in its own form, what the other texts of
            the event say: it goes where one of these goes.
    """
    mine = None if streams is None else frozenset(streams)
    asked: tuple[str, ...] = ()
    query = "SELECT ref, NULL FROM contents WHERE salt IS NOT NULL"
    if matches is not None:
        query = "SELECT ref, body FROM contents WHERE body IS NOT NULL"
    with translated(log.path), closing(log.reader()) as db:
        until = last_position(db)
        if mine is not None:
            own = refs_in(data for name, _, data in _payloads(db, 0, until) if name in mine)
            query += " AND ref IN (SELECT value FROM json_each(?))"
            asked = (json.dumps(own),)
        refs = frozenset(
            ref for ref, body in db.execute(query, asked) if matches is None or matches(body)
        )
        if matches is not None and evidence is not None:
            refs |= _evidence_beside(db, refs, evidence, until, mine)
        kept = (
            refs & _kept(db, mine, 0, until, forgotten or {}) if mine is not None else frozenset()
        )
    return Erasable(refs - kept, len(kept), mine, until)


def erase(log: EventLog, found: Erasable, record: Callable[[list[str]], Append]) -> Erased:
    """Erase texts for good, record that in the same transaction, and release the space.

    Args:
        log: The log.
        found: The result of `find_erasable` there. Texts that got new references stay.
        record: Returns what to append, given the references of the erased texts. It has to name
            them, so that they are erased in every log that takes it.

    Raises:
        ConflictError: The record does not fit its stream; nothing is erased.
        OpenError: The file cannot be written.
    """

    def run(connection: sqlite3.Connection, projector: Projector) -> Erased:
        with immediate(connection):
            refs = found.refs
            if found.streams is not None:
                last = last_position(connection)
                refs -= _kept(connection, found.streams, found.until, last, {})
            erased = empty_rows(connection, refs)
            (refused,) = Appender(connection).write([[log.redacted(record(erased))]])
            if refused is not None:
                raise refused
            projector.fold()
        return Erased(len(erased), give_back(connection))

    return log.run(run)


def _evidence_beside(
    connection: sqlite3.Connection,
    refs: frozenset[str],
    evidence: str,
    until: int,
    streams: frozenset[str] | None,
) -> set[str]:
    """The texts under `evidence` in events that refer to one of some texts, if they are here."""
    found = {
        beside
        for name, _, data in _payloads(connection, 0, until)
        if (streams is None or name in streams)
        and (beside := ref_under(evidence, data)) is not None
        and not refs.isdisjoint(refs_in([data]))
    }
    rows = connection.execute(
        "SELECT ref FROM contents WHERE body IS NOT NULL"
        " AND ref IN (SELECT value FROM json_each(?))",
        (json.dumps(sorted(found)),),
    )
    return {ref for (ref,) in rows}


def ref_under(name: str, payload: str) -> str | None:
    """The reference under a top-level name of a stored payload; None without such a member."""
    if f'"{name}":{{"$ref":' not in payload:
        return None
    member = json.loads(payload).get(name)
    return member["$ref"] if isinstance(member, dict) and "$ref" in member else None


def _kept(
    connection: sqlite3.Connection,
    streams: frozenset[str],
    after: int,
    until: int,
    forgotten: Mapping[str, str],
) -> set[str]:
    """The references of events in other streams than these, except forgotten ones."""
    return set(
        refs_in(
            data
            for name, at, data in _payloads(connection, after, until)
            if name not in streams and at > forgotten.get(name, "")
        )
    )


def _payloads(
    connection: sqlite3.Connection, after: int, until: int
) -> Iterator[tuple[str, str, str]]:
    """Stream, time and data of the events after a position, up to another."""
    # As text: a reference in a payload counts even if it was turned into a blob.
    return connection.execute(
        "SELECT streams.name, events.at, CAST(events.data AS TEXT) FROM events"
        " JOIN streams ON streams.id = events.stream WHERE events.seq > ? AND events.seq <= ?",
        (after, until),
    )


def refs_in(payloads: Iterable[str]) -> list[str]:
    """The references in stored payloads, without duplicates."""
    return list(dict.fromkeys(ref for data in payloads for ref in _REF.findall(data)))


def empty_rows(connection: sqlite3.Connection, refs: Iterable[str]) -> list[str]:
    """Empty rows of texts, inside the open transaction; return the references of those.

    A text that is not here yet gets an empty row, so that no other log can bring it.
    """
    asked = (json.dumps(sorted(set(refs))),)
    emptied = connection.execute(
        "UPDATE contents SET salt = NULL, digest = NULL, body = NULL"
        " WHERE ref IN (SELECT value FROM json_each(?))"
        " AND (salt IS NOT NULL OR body IS NOT NULL) RETURNING ref",
        asked,
    ).fetchall()
    connection.execute(
        "INSERT INTO contents (ref) SELECT value FROM json_each(?)"
        " WHERE NOT EXISTS (SELECT 1 FROM contents WHERE ref = value)",
        asked,
    )
    return sorted(ref for (ref,) in emptied)


def empty_refs(connection: sqlite3.Connection) -> set[str]:
    """Texts that were erased, or emptied by something else; not the withheld ones."""
    rows = connection.execute("SELECT ref FROM contents WHERE body IS NULL AND salt IS NULL")
    return {ref for (ref,) in rows}


def erased_by_log(
    connection: sqlite3.Connection, erasures: Erasures, only: Collection[str] | None = None
) -> set[str]:
    """The texts with empty rows that the events of the log say were erased.

    Args:
        connection: Any connection to the log.
        erasures: Which events say so.
        only: Names of the streams whose events count; None: all.
    """
    empty = empty_refs(connection)
    if not empty:
        return empty
    named: set[str] = set()
    older = []
    for event in events_of_types(connection, erasures):
        if only is None or event.stream in only:
            refs, covers = erasures[event.type](event)
            if refs is None:
                older.append(covers)
            else:
                named.update(refs)
    if older and not empty <= named:
        last = last_position(connection)
        covered = {
            name
            for (name,) in connection.execute("SELECT name FROM streams")
            if any(covers(name) for covers in older)
        }
        named.update(refs_in(d for name, _, d in _payloads(connection, 0, last) if name in covered))
    return named & empty


def give_back(connection: sqlite3.Connection) -> bool:
    """Release free pages to the disk and empty the WAL; return whether that was possible.

    The connection is in no transaction.
    """
    connection.execute(f"PRAGMA busy_timeout = {_WAIT_MS}")
    try:
        # A script: the statement has to be stepped through, a page at a time.
        connection.executescript("PRAGMA incremental_vacuum")
        return truncate_wal(connection)
    except sqlite3.OperationalError as error:
        if not is_locked(error):
            raise
        return False
    finally:
        connection.execute("PRAGMA busy_timeout = 0")
