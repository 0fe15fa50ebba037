"""Computes the tables of projections anew, apart from the file, to hold those of the file to them.

No hash covers a table: whoever can write the file can change one, and nothing that checks events
will see it. What the events give, they give again.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any

from kindlm_store.errors import ProjectionError
from kindlm_store.projection import quoted
from kindlm_store.projector import Fold
from kindlm_store.reading import select_of_stream
from kindlm_store.upcasting import Upcasters

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from kindlm_store.projection import Projection, Table

_PIECE = 5_000
"""Events folded at once."""


@contextmanager
def recomputed(
    connection: sqlite3.Connection,
    projections: Sequence[Projection],
    stream: str,
    beside: Collection[str] = (),
    upcasters: Upcasters | None = None,
) -> Iterator[sqlite3.Connection]:
    """Fold projections from a part of the events, into a database of its own.

    It lies in memory, and where that is not enough in a file without a name.

    Args:
        connection: Of a log, to read with; in a transaction, all is of one moment.
        projections: What to fold.
        stream: The stream whose events are folded.
        beside: Types of events that are folded whatever stream they are in.
        upcasters: Lift the payloads of older events.

    Raises:
        ProjectionError: The events can not be folded.
    """
    lift = upcasters or Upcasters()
    with closing(sqlite3.connect("", isolation_level=None)) as apart:
        apart.execute("PRAGMA synchronous = OFF")
        folds = []
        for projection in projections:
            for table in projection.tables:
                apart.execute(table.create())
            folds.append(Fold(projection, {table.name: table.name for table in projection.tables}))
        events = map(lift.lift_event, select_of_stream(connection, stream, beside))
        apart.execute("BEGIN")
        while piece := list(islice(events, _PIECE)):
            for fold in folds:
                problem = fold.apply(apart, fold.prepare(piece))
                if problem is not None:
                    raise ProjectionError(fold.projection.name, problem)
        apart.execute("COMMIT")
        yield apart


def first_difference(
    stored: sqlite3.Connection,
    computed: sqlite3.Connection,
    table: Table,
    where: str,
    parameters: Mapping[str, Any],
) -> str | None:
    """Return the key of the first row that two databases do not have alike; None if all are.

    `where` says in SQL which rows of the table are looked at, in both.
    """
    key = ", ".join(map(quoted, table.primary_key))
    others = ", ".join(quoted(name) for name in table.columns if name not in table.primary_key)
    columns = f"{key}, {others}" if others else key
    query = f"SELECT {columns} FROM {quoted(table.name)} WHERE {where} ORDER BY {key}"  # noqa: S608
    cursors = [database.cursor() for database in (stored, computed)]
    for cursor in cursors:
        cursor.row_factory = None
    rows = zip_longest(*(cursor.execute(query, parameters) for cursor in cursors))
    for has, should in rows:
        if has != should:
            # The smaller key: of a row that is only here, or only there.
            width = len(table.primary_key)
            keys = [tuple(map(str, row[:width])) for row in (has, should) if row is not None]
            return ", ".join(min(keys))
    return None


def changed_views(connection: sqlite3.Connection, projection: Projection) -> list[str]:
    """Return the views of a projection that are not as it says; a table may be one by now."""
    found = {
        name: (kind, sql)
        for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master")
    }
    views = [
        name
        for name, sql in projection.create_views().items()
        # SQLite keeps a statement without the blanks at its end.
        if found.get(name) != ("view", sql.rstrip())
    ]
    tables = [t.name for t in projection.tables if found.get(t.name, ("", ""))[0] != "table"]
    return [*tables, *views]
