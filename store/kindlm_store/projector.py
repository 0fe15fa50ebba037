"""Folds projections inside the writer's transaction, each from its own checkpoint.

A fold runs in a savepoint: a projection that raises loses its fold, never the events, and is left
alone until it is rebuilt. Tables of a newer version are never touched.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from kindlm_store.database import immediate
from kindlm_store.reading import last_position, select_between
from kindlm_store.statements import Run, Statements, execute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kindlm_store.appender import Written
    from kindlm_store.events import RecordedEvent
    from kindlm_store.projection import Operation, Projection
    from kindlm_store.upcasting import Upcasters

_CATCH_UP = 5_000
"""Events read at once when another process appended without folding them."""

_DISK_TROUBLE = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
}


Prepared = list[Run] | str
"""Statements to execute, or why there are none."""


class State(NamedTuple):
    """What the file says of a projection."""

    version: int
    checkpoint: int
    error: str | None


def read_states(connection: sqlite3.Connection) -> dict[str, State]:
    """What the file says of its projections."""
    rows = connection.execute("SELECT name, version, checkpoint, error FROM projections")
    return {row[0]: State(row[1], row[2], row[3]) for row in rows}


def problem_of(projection: Projection, state: State | None) -> str | None:
    """Why the tables of a projection cannot be read by this code; None if they can."""
    if state is None:
        return "has not been folded yet"
    if state.version > projection.version:
        return (
            f"has version {state.version} in this file, this program knows version"
            f" {projection.version}: update the program"
        )
    if state.version < projection.version:
        return f"has version {state.version} in this file, older than {projection.version}"
    return state.error


def projection_errors(
    connection: sqlite3.Connection, projections: Iterable[Projection]
) -> dict[str, str]:
    """Projections whose tables this code cannot read, or that are not up to date, with the reason.

    Args:
        connection: Any connection to the log, `open_reader` for instance.
        projections: The projections of this code.
    """
    states = read_states(connection)
    problems = {p.name: problem_of(p, states.get(p.name)) for p in projections}
    return {name: problem for name, problem in problems.items() if problem}


def behind_the_log(connection: sqlite3.Connection, projections: Iterable[Projection]) -> list[str]:
    """Projections whose tables say of themselves that they are not of the last event.

    Whoever writes through this code folds in the same transaction: another program has written, or
    somebody has changed how far the tables say they are.
    """
    last = last_position(connection)
    states = read_states(connection)
    return [
        projection.name
        for projection in projections
        if (state := states.get(projection.name)) is not None
        and problem_of(projection, state) is None
        and state.checkpoint != last
    ]


class Fold:
    """One projection on its way: handlers on one side, tables on the other.

    Args:
        projection: What to fold.
        tables: Name the projection uses → name of the table that stands for it.
    """

    def __init__(self, projection: Projection, tables: dict[str, str]) -> None:
        self.projection = projection
        self._statements = Statements(tables)

    def prepare(self, events: Iterable[RecordedEvent]) -> Prepared:
        """Ask the handlers what events do; a string says what went wrong in one of them."""
        try:
            return self._statements.batch(self._operations(events))
        # A handler may raise anything; it is recorded beside the projection.
        except Exception as error:  # noqa: BLE001
            return _described(error)

    def apply(self, connection: sqlite3.Connection, prepared: Prepared) -> str | None:
        """Write what was prepared, inside a savepoint.

        Returns:
            What went wrong, after the savepoint was rolled back; None if nothing did.

        Raises:
            sqlite3.Error: The file cannot be written.
        """
        if isinstance(prepared, str):
            return prepared
        if not prepared:
            return None
        connection.execute("SAVEPOINT fold")
        try:
            execute(connection, prepared)
        # Also a value that SQLite does not take, or a key that is there twice.
        except Exception as error:
            if _is_disk_trouble(error) or not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO fold")
            connection.execute("RELEASE fold")
            return _described(error)
        connection.execute("RELEASE fold")
        return None

    def _operations(self, events: Iterable[RecordedEvent]) -> Iterator[Operation]:
        handlers = self.projection.handlers
        for event in events:
            handler = handlers.get(event.type)
            if handler is not None:
                yield from handler(event)


class Projector:
    """All projections of a log.

    Attributes:
        handled: The event types that they handle.
    """

    def __init__(self, projections: Sequence[Projection], upcasters: Upcasters) -> None:
        self._upcasters = upcasters
        self._folds = [Fold(p, {table.name: table.name for table in p.tables}) for p in projections]
        self.handled = frozenset[str]().union(*(p.handlers for p in projections))

    def fold(self, connection: sqlite3.Connection, written: Written) -> None:
        """Fold what was just written, and what others wrote before it.

        Raises:
            sqlite3.Error: The file cannot be written.
        """
        if written.last == written.before:
            return
        lifted = [self._upcasters.lift_event(event) for event in written.events]
        self._fold(connection, written.before, [(written.last, lifted)])

    def catch_up(self, connection: sqlite3.Connection) -> None:
        """Fold what a program without these projections has written, if any did."""
        last = last_position(connection)
        states = read_states(connection)
        if any(
            not problem_of(fold.projection, state) and state.checkpoint < last
            for fold in self._folds
            if (state := states.get(fold.projection.name))
        ):
            with immediate(connection):
                self.fold_missed(connection)

    def fold_missed(self, connection: sqlite3.Connection) -> None:
        """Fold, inside the open transaction, whatever was not folded yet."""
        self._fold(connection, last_position(connection), [])

    def _fold(
        self,
        connection: sqlite3.Connection,
        before: int,
        written: list[tuple[int, list[RecordedEvent]]],
    ) -> None:
        """Fold, inside the open transaction, up to a position, and then what was written."""
        states = read_states(connection) if self._folds else {}
        reached: defaultdict[int, list[str]] = defaultdict(list)
        for fold in self._folds:
            name = fold.projection.name
            state = states.get(name)
            if state is None or problem_of(fold.projection, state):
                continue
            checkpoint = state.checkpoint
            for until, events in chain(self._missed(connection, fold, state, before), written):
                error = fold.apply(connection, fold.prepare(events))
                if error:
                    _keep_error(connection, name, error)
                    break
                checkpoint = until
            reached[checkpoint].append(name)
        for checkpoint, names in reached.items():
            _keep_checkpoint(connection, names, checkpoint)

    def _missed(
        self, connection: sqlite3.Connection, fold: Fold, state: State, before: int
    ) -> Iterator[tuple[int, list[RecordedEvent]]]:
        """What others wrote behind the checkpoint, in pieces, with their ends."""
        after = state.checkpoint
        while after < before:
            until = min(after + _CATCH_UP, before)
            rows = select_between(connection, after, until, fold.projection.handlers)
            yield until, [self._upcasters.lift_event(event) for event in rows]
            after = until


def _keep_checkpoint(connection: sqlite3.Connection, names: list[str], until: int) -> None:
    marks = ",".join("?" * len(names))
    connection.execute(
        f"UPDATE projections SET checkpoint = ? WHERE name IN ({marks})",  # noqa: S608
        (until, *names),
    )


def _keep_error(connection: sqlite3.Connection, name: str, error: str) -> None:
    connection.execute("UPDATE projections SET error = ? WHERE name = ?", (error, name))


def _is_disk_trouble(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, sqlite3.Error) and code & 0xFF in _DISK_TROUBLE


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
