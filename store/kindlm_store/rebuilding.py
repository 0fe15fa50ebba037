"""Folding projections anew: into shadow tables, which then take the place of the old ones.

The first event to the last are folded in pieces, each its own short transaction, so that other
processes go on appending. Only the last piece and the swap are one transaction: whoever looks sees
the old tables or the complete new ones, and a crash leaves shadows behind that are dropped when the
log is next opened.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from kindlm_store.database import immediate
from kindlm_store.errors import ProjectionError
from kindlm_store.locks import setup_lock, setup_lock_if_free
from kindlm_store.projection import quoted
from kindlm_store.projector import Fold, problem_of, read_states
from kindlm_store.reading import last_position, select_between

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

    from kindlm_store.events import RecordedEvent
    from kindlm_store.projection import Projection, Table
    from kindlm_store.projector import Prepared
    from kindlm_store.upcasting import Upcasters

Progress = Callable[[int, int], None]

SHADOW = "_shadow"
"""What the names of tables end with that are to take the place of others."""

_PIECE = 5_000
"""Events per transaction: others wait for about a tenth of a second at most."""


def drop_shadows(
    connection: sqlite3.Connection, path: Path, projections: Sequence[Projection]
) -> None:
    """Drop the shadow tables that a crash left behind; those of a living process stay."""
    if not _shadows(connection, projections):
        return
    with setup_lock_if_free(path) as held:
        if held:
            with immediate(connection):
                _drop_shadows(connection, projections)


def refold_outdated(
    connection: sqlite3.Connection,
    path: Path,
    projections: Sequence[Projection],
    upcasters: Upcasters,
) -> None:
    """Fold what the file does not have yet, or has in an older version."""
    if not _outdated(connection, projections):
        return
    with setup_lock(path):
        _refold(connection, _outdated(connection, projections), upcasters, None)


def refold(
    connection: sqlite3.Connection,
    path: Path,
    projections: Sequence[Projection],
    upcasters: Upcasters,
    progress: Progress | None,
) -> None:
    """Fold projections anew.

    Raises:
        ProjectionError: The file has one in a newer version.
    """
    with setup_lock(path):
        states = read_states(connection)
        for projection in projections:
            state = states.get(projection.name)
            if state is not None and state.version > projection.version:
                raise ProjectionError(projection.name, problem_of(projection, state) or "")
        _refold(connection, projections, upcasters, progress)


def _outdated(
    connection: sqlite3.Connection, projections: Sequence[Projection]
) -> list[Projection]:
    states = read_states(connection)
    return [p for p in projections if p.name not in states or states[p.name].version < p.version]


def _refold(
    connection: sqlite3.Connection,
    projections: Sequence[Projection],
    upcasters: Upcasters,
    progress: Progress | None,
) -> None:
    if not projections:
        return
    rebuilds = [_Rebuild(projection) for projection in projections]
    types = frozenset[str]().union(*(p.handlers for p in projections))
    after, finished = 0, False
    while not finished:
        until = min(after + _PIECE, last_position(connection))
        events = [upcasters.lift_event(e) for e in select_between(connection, after, until, types)]
        # Before the transaction: handlers take most of the time, and others may append meanwhile.
        for rebuild in rebuilds:
            rebuild.prepare(events)
        with immediate(connection):
            if not after:
                _drop_shadows(connection, projections)
                for rebuild in rebuilds:
                    rebuild.create(connection)
            for rebuild in rebuilds:
                rebuild.apply(connection, until)
            end = last_position(connection)
            finished = until == end
            if finished:
                for rebuild in rebuilds:
                    rebuild.swap(connection)
        after = until
        if progress is not None:
            progress(until, end)


def _drop_shadows(connection: sqlite3.Connection, projections: Sequence[Projection]) -> None:
    for shadow in _shadows(connection, projections):
        connection.execute(f"DROP TABLE {quoted(shadow)}")


def _shadows(connection: sqlite3.Connection, projections: Sequence[Projection]) -> list[str]:
    """The shadow tables there are, also of projections in the version that the file has."""
    names = {table.name for projection in projections for table in projection.tables}
    for (tables,) in connection.execute("SELECT tables FROM projections"):
        names.update(json.loads(tables))
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return [name for (name,) in tables if name.removesuffix(SHADOW) in names - {name}]


class _Rebuild:
    """One projection on its way into shadow tables.

    A projection that fails stays where it failed, with its error, as it does in the writer.
    """

    def __init__(self, projection: Projection) -> None:
        self._projection = projection
        self._fold = Fold(projection, {t.name: t.name + SHADOW for t in projection.tables})
        self._prepared: Prepared = []
        self._checkpoint = 0
        self._error: str | None = None

    def create(self, connection: sqlite3.Connection) -> None:
        """Create the shadow tables."""
        for table in self._projection.tables:
            shadow = table.name + SHADOW
            connection.execute(table.create(shadow))
            for statement in table.create_indexes(shadow, _free_suffix(connection, table)):
                connection.execute(statement)

    def prepare(self, events: Sequence[RecordedEvent]) -> None:
        """Ask the handlers, outside the transaction."""
        if self._error is None:
            self._prepared = self._fold.prepare(events)

    def apply(self, connection: sqlite3.Connection, until: int) -> None:
        """Write what was prepared into the shadow tables."""
        if self._error is None:
            self._error = self._fold.apply(connection, self._prepared)
        if self._error is None:
            self._checkpoint = until

    def swap(self, connection: sqlite3.Connection) -> None:
        """Put the shadow tables in the place of what the file has of this projection."""
        name = self._projection.name
        tables = [table.name for table in self._projection.tables]
        views = list(self._projection.views)
        row = connection.execute(
            "SELECT tables, views FROM projections WHERE name = ?", (name,)
        ).fetchone()
        old_tables, old_views = map(json.loads, row or ("[]", "[]"))
        for view in {*old_views, *views}:
            connection.execute(f"DROP VIEW IF EXISTS {quoted(view)}")
        for table in {*old_tables, *tables}:
            connection.execute(f"DROP TABLE IF EXISTS {quoted(table)}")
        for table in tables:
            connection.execute(f"ALTER TABLE {quoted(table + SHADOW)} RENAME TO {quoted(table)}")
        for statement in self._projection.create_views().values():
            connection.execute(statement)
        connection.execute(
            "INSERT OR REPLACE INTO projections (name, version, checkpoint, error, tables, views)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (
                name,
                self._projection.version,
                self._checkpoint,
                self._error,
                json.dumps(tables),
                json.dumps(views),
            ),
        )


def _free_suffix(connection: sqlite3.Connection, table: Table) -> str:
    """Indexes are not renamed with their table: new ones take the names the old ones left free."""
    names = list(table.index_names())
    marks = ",".join("?" * len(names))
    taken = connection.execute(
        f"SELECT 1 FROM sqlite_master WHERE type = 'index' AND name IN ({marks})",  # noqa: S608
        names,
    ).fetchone()
    return "_2" if taken else ""
