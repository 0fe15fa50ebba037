"""Folds the events of a stream again, in a temporary log, and compares tables with the result.

Hashes cover events, but not tables. So a difference shows that someone changed the tables.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import zip_longest
from json import dumps
from typing import Any

from kindlm_store.projecting import Projection, Projector, quoted
from kindlm_store.reading import last_position
from kindlm_store.salvage import scratch_log
from kindlm_store.store_errors import ProjectionError

_EVENTS = """
SELECT * FROM events
 WHERE seq IN (SELECT seq FROM events WHERE stream = (SELECT id FROM streams WHERE name = ?)
               UNION
               SELECT seq FROM events
                WHERE type IN (SELECT id FROM event_types
                                WHERE name IN (SELECT value FROM json_each(?))))
"""


@contextmanager
def recomputed(
    connection: sqlite3.Connection,
    projections: Sequence[Projection],
    stream: str,
    beside: Collection[str],
) -> Iterator[sqlite3.Connection]:
    """Fold projections from some events into a temporary database.

    Args:
        connection: A connection to the log; a transaction makes it read one snapshot.
        projections: The projections to fold.
        stream: The stream whose events are folded.
        beside: Types of events that are folded from all streams.

    Raises:
        ProjectionError: The events cannot be folded.
    """
    with closing(scratch_log()) as apart:
        apart.execute("BEGIN")
        for table, query, asked in (
            ("streams", "SELECT * FROM streams", ()),
            ("event_types", "SELECT * FROM event_types", ()),
            ("events", _EVENTS, (stream, dumps([*beside]))),
        ):
            rows = connection.execute(query, asked)
            rows.row_factory = None
            places = ",".join("?" * len(rows.description))
            apart.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608
        for projection in projections:
            for sql in projection.tables.values():
                apart.execute(sql)
        projector = Projector(apart, projections)
        for failed, (_, problem) in projector.advance(projections, 0, last_position(apart)).items():
            raise ProjectionError(failed, problem)
        apart.execute("COMMIT")
        yield apart


def first_difference(
    stored: sqlite3.Connection,
    computed: sqlite3.Connection,
    table: str,
    where: str,
    parameters: Mapping[str, Any],
) -> str | None:
    """Return the key of the first row of a table that differs; None if all rows are equal.

    `where`, in SQL, selects the rows to compare.
    """
    # The key first. The last value of a column's row is its place in the key, or 0.
    described = computed.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
    width = sum(place > 0 for *_, place in described)
    names = [quoted(name) for _, name, *_ in sorted(described, key=lambda c: c[5] or 999)]
    columns, key = ", ".join(names), ", ".join(names[:width])
    query = f"SELECT {columns} FROM {quoted(table)} WHERE {where} ORDER BY {key}"  # noqa: S608
    cursors = [database.cursor() for database in (stored, computed)]
    for cursor in cursors:
        cursor.row_factory = None
    rows = zip_longest(*(cursor.execute(query, parameters) for cursor in cursors))
    for has, should in rows:
        if has != should:
            # If only one database has the row, the smaller key is that of the row.
            keys = [tuple(map(str, row[:width])) for row in (has, should) if row is not None]
            return ", ".join(min(keys))
    return None
