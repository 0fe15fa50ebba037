"""Operations of projections as SQL, in batches.

Operations on one table keep their order; runs that need the same statement are executed at once.
Between tables order does not matter: an operation sees no table but its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kindlm_store.bulk import insert_rows
from kindlm_store.projection import Delete, Insert, Operation, Update, Upsert, Value, quoted

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

_Parameters = tuple[Value, ...]


class Statement(NamedTuple):
    """A statement in SQL; that of an insert is in two parts, what comes before and behind VALUES.

    Attributes:
        text: The statement, or its beginning.
        ending: The rest of an insert; None for any other statement.
    """

    text: str
    ending: str | None = None


Run = tuple[Statement, list[_Parameters]]
"""A statement and the parameters to execute it with, one after another."""


class Statements:
    """Turns operations into statements; each text is built once.

    Args:
        tables: Name a projection uses → name of the table that stands for it.
    """

    def __init__(self, tables: Mapping[str, str]) -> None:
        self._tables = {name: quoted(actual) for name, actual in tables.items()}
        self._built: dict[tuple[object, ...], Statement] = {}

    def batch(self, operations: Iterable[Operation]) -> list[Run]:
        """Statements with the parameters to execute each with, in order.

        Raises:
            LookupError: An operation names a table that the projection does not have.
        """
        by_table: dict[str, list[Run]] = {}
        for operation in operations:
            statement, parameters = self._statement(operation)
            runs = by_table.setdefault(operation.table, [])
            if runs and runs[-1][0] is statement:
                runs[-1][1].append(parameters)
            else:
                runs.append((statement, [parameters]))
        return [run for runs in by_table.values() for run in runs]

    def _statement(self, operation: Operation) -> tuple[Statement, _Parameters]:
        match operation:
            case Insert(table, row):
                return self._find("insert", table, (), tuple(row)), tuple(row.values())
            case Upsert(table, key, row, newest):
                rest = {name: value for name, value in row.items() if name not in key}
                statement = self._find("upsert", table, tuple(key), tuple(rest), newest)
                return statement, (*key.values(), *rest.values())
            case Update(table, key, changes, additions):
                statement = self._find(
                    "update", table, tuple(key), tuple(changes), tuple(additions)
                )
                return statement, (*changes.values(), *additions.values(), *key.values())
            case Delete(table, key):
                return self._find("delete", table, tuple(key)), tuple(key.values())

    def _find(
        self,
        kind: str,
        table: str,
        key: tuple[str, ...],
        row: tuple[str, ...] = (),
        more: tuple[str, ...] = (),
    ) -> Statement:
        shape = (kind, table, key, row, more)
        statement = self._built.get(shape)
        if statement is None:
            name = self._tables.get(table)
            if name is None:
                message = f"there is no table {table!r} in this projection"
                raise LookupError(message)
            build = {"insert": _insert, "upsert": _upsert, "update": _update, "delete": _delete}
            statement = self._built[shape] = build[kind](name, key, row, more)
        return statement


def execute(connection: sqlite3.Connection, runs: Iterable[Run]) -> None:
    """Execute what `Statements.batch` made."""
    for statement, parameters in runs:
        if statement.ending is not None:
            insert_rows(connection, statement.text, parameters, statement.ending)
        else:
            connection.executemany(statement.text, parameters)


_Names = tuple[str, ...]


def _insert(table: str, key: _Names, row: _Names, more: _Names) -> Statement:
    del more
    names = ", ".join(map(quoted, (*key, *row)))
    return Statement(f"INSERT INTO {table} ({names})", "")


def _upsert(table: str, key: _Names, row: _Names, newest: _Names) -> Statement:
    insert = _insert(table, key, row, ())
    target = ", ".join(map(quoted, key))
    if not row:
        return insert._replace(ending=f"ON CONFLICT ({target}) DO NOTHING")
    changes = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in row)
    ending = f"ON CONFLICT ({target}) DO UPDATE SET {changes}"
    if newest:
        incoming = ", ".join(f"excluded.{quoted(name)}" for name in newest)
        known = ", ".join(f"{table}.{quoted(name)}" for name in newest)
        ending += f" WHERE ({incoming}) >= ({known})"
    return insert._replace(ending=ending)


def _update(table: str, key: _Names, changes: _Names, additions: _Names) -> Statement:
    parts = [f"{quoted(name)} = ?" for name in changes]
    parts += [f"{quoted(name)} = coalesce({quoted(name)}, 0) + ?" for name in additions]
    return Statement(f"UPDATE {table} SET {', '.join(parts)}{_where(key)}")  # noqa: S608


def _delete(table: str, key: _Names, row: _Names, more: _Names) -> Statement:
    del row, more
    return Statement(f"DELETE FROM {table}{_where(key)}")  # noqa: S608


def _where(key: _Names) -> str:
    return " WHERE " + " AND ".join(f"{quoted(name)} IS ?" for name in key)
