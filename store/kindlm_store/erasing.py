"""Erases texts permanently: empties their rows, and leaves no trace in the file or its WAL.

A row keeps its reference, so that the chain stays valid. It loses body, salt and digest, so that no
one can test whether it was a certain text. SQLite's `secure_delete` overwrites them in the table.
In the index of the digests, it leaves copies where pages were divided, so this index is made anew.

An event names the texts that it erased; a log that the event is merged into erases them, too. An
empty row without such an event was emptied by another program.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from kindlm_store.append import Appender
from kindlm_store.database import immediate, is_locked, translated, truncate_wal
from kindlm_store.log import EventLog
from kindlm_store.new_event import Append
from kindlm_store.projecting import Projector
from kindlm_store.reading import RecordedEvent, events_of_types, last_position

_REF = re.compile(r'"\$ref":"([^"\\]*)"')
"""Finds member names only: a quotation mark inside a JSON string is escaped."""

_WAIT_MS = 10_000
"""How long to wait for readers before the WAL is emptied."""


Erasures = Mapping[str, Callable[["RecordedEvent"], Collection[str] | None]]
"""Event type → function that reads the references of erased texts from an event of this type.

If the event is too old to name them, the function returns None, and the event may have erased every
text that is empty.
"""


class Erasable(NamedTuple):
    """The references of texts that can be erased.

    `shared` counts other texts that matched, and stay since events of other streams use them.
    `streams` are those whose texts were requested, None for any. `until` is the position of the
    last event that was read.
    """

    refs: frozenset[str]
    shared: int
    streams: frozenset[str] | None
    until: int


class Erased(NamedTuple):
    """How many texts are gone, and whether the WAL was emptied.

    If a reader prevented that, the WAL may contain erased content until the last program closes the
    file.
    """

    texts: int
    emptied: bool


def find_erasable(
    log: EventLog,
    streams: Collection[str] | None = None,
    matches: Callable[[str], bool] | None = None,
    evidence: str | None = None,
) -> Erasable:
    """Return the matching texts that only events of some streams, or of any, refer to.

    Without `matches`, these are all texts, including withheld ones. `evidence` is the member of
    events that repeats their other texts in its own form. Its text is erased with any of these.
    """
    own = None if streams is None else frozenset(streams)
    used: set[str] = set()
    kept: set[str] = set()
    repeating: list[tuple[str, list[str]]] = []
    column = "salt" if matches is None else "body"
    there: set[str] = set()
    found: set[str] = set()
    with translated(log.path), closing(log.reader()) as db:
        until = last_position(db)
        for name, data in _payloads(db, 0, until):
            refs = refs_in([data])
            if own is not None and name not in own:
                kept.update(refs)
                continue
            used.update(refs)
            if evidence is not None and (ref := ref_under(evidence, data)) is not None:
                repeating.append((ref, refs))
        query = f"SELECT ref, body FROM contents WHERE {column} IS NOT NULL"  # noqa: S608
        if own is None:
            rows = db.execute(query)
        else:
            query += " AND ref IN (SELECT value FROM json_each(?))"
            rows = db.execute(query, (json.dumps([*used]),))
        for ref, body in rows:
            there.add(ref)
            if matches is None or matches(body):
                found.add(ref)
    found |= {ref for ref, refs in repeating if ref in there and not found.isdisjoint(refs)}
    return Erasable(frozenset(found - kept), len(found & kept), own, until)


def erase(log: EventLog, found: Erasable, record: Callable[[list[str]], Append]) -> Erased:
    """Erase texts, record that in the same transaction, and release the space.

    Texts that got new references since they were found stay. `record` returns the append that names
    the erased texts, given their references. A log that it is merged into erases them, too. Raises
    `ConflictError` if it does not fit its stream, and `OpenError`; nothing is erased then.
    """

    def run(connection: sqlite3.Connection, projector: Projector) -> Erased:
        with immediate(connection):
            refs = found.refs
            if found.streams is not None:
                new = _payloads(connection, found.until, last_position(connection))
                refs -= {*refs_in(data for name, data in new if name not in found.streams)}
            erased = empty_rows(connection, refs)
            rebuild_index(connection)
            (refused,) = Appender(connection).write([[log.redacted(record(erased))]])
            if refused is not None:
                raise refused
            projector.fold()
        return Erased(len(erased), give_back(connection))

    return log.run(run)


def ref_under(name: str, payload: str) -> str | None:
    """Return the reference in a top-level member of a stored payload; None without it."""
    if f'"{name}":{{"$ref":' not in payload:
        return None
    member = json.loads(payload).get(name)
    return member["$ref"] if isinstance(member, dict) and "$ref" in member else None


def _payloads(connection: sqlite3.Connection, after: int, until: int) -> Iterator[tuple[str, str]]:
    """Select stream and data of the events after a position, up to another."""
    # The CAST also reads a payload that was changed to a blob.
    return connection.execute(
        "SELECT streams.name, CAST(events.data AS TEXT) FROM events"
        " JOIN streams ON streams.id = events.stream WHERE events.seq > ? AND events.seq <= ?",
        (after, until),
    )


def refs_in(payloads: Iterable[str]) -> list[str]:
    """Return the references in stored payloads, without duplicates."""
    return list(dict.fromkeys(ref for data in payloads for ref in _REF.findall(data)))


def empty_rows(connection: sqlite3.Connection, refs: Iterable[str]) -> list[str]:
    """Empty the rows of texts in the open transaction; return the references of emptied rows.

    A text without a row gets an empty one, so that no merge brings it.
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


def rebuild_index(connection: sqlite3.Connection) -> None:
    """Make the index of the digests anew in the open transaction, after rows were emptied."""
    # A page that is divided keeps bytes of the rows that moved, which `secure_delete` never clears.
    connection.execute("REINDEX contents_digest")


def erased_by_log(
    connection: sqlite3.Connection, erasures: Erasures, only: Collection[str] | None = None
) -> set[str]:
    """Return the texts with empty rows that events erased; with `only`, events of some streams."""
    # The salt of a withheld text is not NULL.
    rows = connection.execute("SELECT ref FROM contents WHERE body IS NULL AND salt IS NULL")
    empty = {ref for (ref,) in rows}
    if not empty:
        return empty
    named: set[str] = set()
    for event in events_of_types(connection, erasures):
        if only is None or event.stream in only:
            refs = erasures[event.type](event)
            named.update(empty if refs is None else refs)
    return named & empty


def give_back(connection: sqlite3.Connection) -> bool:
    """Release free pages to the disk, outside a transaction; return whether the WAL was emptied."""
    connection.execute(f"PRAGMA busy_timeout = {_WAIT_MS}")
    try:
        # `executescript` steps through the statement, which releases one page at a step.
        connection.executescript("PRAGMA incremental_vacuum")
        return truncate_wal(connection)
    except sqlite3.OperationalError as error:
        if not is_locked(error):
            raise
        return False
    finally:
        connection.execute("PRAGMA busy_timeout = 0")
