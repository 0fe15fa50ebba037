"""Erasing texts for good: the rows are emptied, and nothing of them stays in the file or its WAL.

A row keeps its reference, so that the chain holds; body, salt and digest go, so that nobody can
try whether it was a certain text. `secure_delete` overwrites what they leave in the file.

What was erased is said by events: one names the texts that it erased, and wherever it is taken they
are erased too. A row that is empty although no event says so was emptied by something else.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kindlm_store.append import insert_rows
from kindlm_store.database import is_locked, truncate_wal
from kindlm_store.reading import last_position, select_of_types

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from kindlm_store.events import RecordedEvent

_REF = re.compile(r'"\$ref":"([^"\\]*)"')
"""Inside a string of JSON a quotation mark is escaped: this is found as a member name only."""

EMPTY_ROWS = "SELECT ref FROM contents WHERE body IS NULL AND salt IS NULL"
"""Selects the texts that were erased, or emptied by something else; not the withheld ones."""

_PAGE = 500
_WAIT_MS = 10_000
"""So long readers may keep the WAL from being emptied."""


class Erasure(NamedTuple):
    """What an event says was erased.

    Attributes:
        refs: References of the texts; None if the event is of a time when they were not named.
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
        shared: How many more would be, if no event of another stream referred to them.
        streams: The streams whose texts were asked for; None for texts of any stream.
        until: Position of the last event that was looked at.
    """

    refs: frozenset[str]
    shared: int
    streams: frozenset[str] | None
    until: int


class Erased(NamedTuple):
    """What became of an erasure.

    Attributes:
        texts: How many texts are gone.
        emptied: Whether the WAL could be emptied. If not, since somebody reads, what was erased
            may be in there until the last program that has the file open closes it.
    """

    texts: int
    emptied: bool


def find_erasable(
    connection: sqlite3.Connection,
    streams: Collection[str] | None,
    matches: Callable[[str], bool] | None,
    forgotten: Mapping[str, str],
) -> Erasable:
    """The texts that only events of some streams refer to, and that match.

    Args:
        connection: Any connection to the log.
        streams: None: whoever refers to them.
        matches: Asked about each text; None matches all.
        forgotten: Stream → until when (UTC, as events have it) its own texts were erased before:
            what its events of that time refer to is kept no longer for its sake.
    """
    until = last_position(connection)
    if streams is None:
        found = _matching(connection, None, matches)
        return Erasable(frozenset(found), 0, None, until)
    mine = frozenset(streams)
    refs = set(_refs_inside(connection, mine, until))
    refs = set(_matching(connection, sorted(refs), matches))
    foreign = {ref for ref in _refs_outside(connection, mine, 0, until, forgotten) if ref in refs}
    return Erasable(frozenset(refs - foreign), len(foreign), mine, until)


def erase(connection: sqlite3.Connection, found: Erasable) -> list[str]:
    """Empty the rows of texts, inside the open transaction; return the references of those.

    What events written since then refer to is left out.
    """
    refs = found.refs
    if found.streams is not None:
        last = last_position(connection)
        refs = refs.difference(_refs_outside(connection, found.streams, found.until, last, {}))
    return empty_rows(connection, refs)


def empty_rows(connection: sqlite3.Connection, refs: Iterable[str]) -> list[str]:
    """Empty rows of texts, inside the open transaction; return the references of those.

    A text that is not here yet gets an empty row: it must not come from anywhere either.
    """
    wanted, emptied = sorted(refs), []
    for start in range(0, len(wanted), _PAGE):
        some = wanted[start : start + _PAGE]
        marks = ",".join("?" * len(some))
        here = dict(
            connection.execute(
                "SELECT ref, salt IS NOT NULL OR body IS NOT NULL FROM contents"  # noqa: S608
                f" WHERE ref IN ({marks})",
                some,
            ).fetchall()
        )
        connection.execute(
            "UPDATE contents SET salt = NULL, digest = NULL, body = NULL"  # noqa: S608
            f" WHERE (salt IS NOT NULL OR body IS NOT NULL) AND ref IN ({marks})",
            some,
        )
        emptied += [ref for ref in some if here.get(ref)]
        if absent := [(ref,) for ref in some if ref not in here]:
            insert_rows(connection, "INSERT INTO contents (ref)", absent)
    return emptied


def erased_by_log(
    connection: sqlite3.Connection,
    erasures: Erasures,
    empty: Collection[str],
    only: Collection[str] | None = None,
) -> set[str]:
    """Those of some texts with empty rows that the events of the log say were erased.

    Args:
        connection: Any connection to the log.
        erasures: Which events say so.
        empty: References of texts whose rows are empty.
        only: Names of the streams whose events count; None: all.
    """
    if not (empty and erasures):
        return set()
    named: set[str] = set()
    older = []
    for event in select_of_types(connection, erasures):
        if only is not None and event.stream not in only:
            continue
        refs, covers = erasures[event.type](event)
        if refs is None:
            older.append(covers)
        else:
            named.update(refs)
    sure = named.intersection(empty)
    if older and len(sure) < len(empty):
        streams = frozenset(
            name
            for (name,) in connection.execute("SELECT name FROM streams")
            if any(covers(name) for covers in older)
        )
        referred = _refs_inside(connection, streams, last_position(connection))
        sure.update(set(empty).intersection(referred))
    return sure


def give_back(connection: sqlite3.Connection) -> bool:
    """Give free pages back to the disk and empty the WAL; return whether that was possible.

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


def refs_in(payloads: Iterable[str]) -> list[str]:
    """What payloads as stored refer to, each reference once."""
    return list(dict.fromkeys(ref for data in payloads for ref in _REF.findall(data)))


def _matching(
    connection: sqlite3.Connection,
    refs: list[str] | None,
    matches: Callable[[str], bool] | None,
) -> Iterator[str]:
    """Yield those of some texts, or of all, that are not erased and match.

    What a withheld text says is not known: it is among them where all are.
    """
    query = "SELECT ref, body FROM contents WHERE salt IS NOT NULL"
    if matches is not None:
        query = "SELECT ref, body FROM contents WHERE body IS NOT NULL"
    if refs is None:
        for ref, body in connection.execute(query):
            if matches is None or matches(body):
                yield ref
        return
    for start in range(0, len(refs), _PAGE):
        some = refs[start : start + _PAGE]
        marks = ",".join("?" * len(some))
        for ref, body in connection.execute(f"{query} AND ref IN ({marks})", some):
            if matches is None or matches(body):
                yield ref


def _refs_inside(
    connection: sqlite3.Connection, streams: frozenset[str], until: int
) -> Iterator[str]:
    """Yield what events of some streams refer to."""
    for number, name in connection.execute("SELECT id, name FROM streams").fetchall():
        if name in streams:
            for (data,) in connection.execute(
                "SELECT data FROM events WHERE stream = ? AND seq <= ?", (number, until)
            ):
                yield from _REF.findall(data)


def _refs_outside(
    connection: sqlite3.Connection,
    streams: frozenset[str],
    after: int,
    until: int,
    forgotten: Mapping[str, str],
) -> Iterator[str]:
    """Yield what events of all other streams refer to, but for what is forgotten."""
    over = {
        number: forgotten.get(name, "")
        for number, name in connection.execute("SELECT id, name FROM streams")
        if name not in streams
    }
    for number, at, data in connection.execute(
        "SELECT stream, at, data FROM events WHERE seq > ? AND seq <= ?", (after, until)
    ):
        if number in over and at > over[number]:
            yield from _REF.findall(data)
