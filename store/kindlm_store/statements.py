"""Operations of projections as SQL, in batches.

Operations on one table keep their order; runs that need the same statement are executed at once.
Between tables order does not matter: an operation sees no table but its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kindlm_store.projection import Delete, Insert, Operation, Update, Upsert, Value, quoted

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

_Parameters = tuple[Value, ...]
Run = tuple[str, list[_Parameters]]
"""A statement and the parameters to execute it with, one after another."""


class Statements:
    """Turns operations into statements; each text is built once.

    Args:
        tables: Name a projection uses → name of the table that stands for it.
    """

    def __init__(self, tables: Mapping[str, str]) -> None:
        self._tables = {name: quoted(actual) for name, actual in tables.items()}
        self._texts: dict[tuple[object, ...], str] = {}

    def batch(self, operations: Iterable[Operation]) -> list[Run]:
        """Statements with the parameters to execute each with, in order.

        Raises:
            LookupError: An operation names a table that the projection does not have.
        """
        by_table: dict[str, list[Run]] = {}
        for operation in operations:
            text, parameters = self._statement(operation)
            runs = by_table.setdefault(operation.table, [])
            if runs and runs[-1][0] is text:
                runs[-1][1].append(parameters)
            else:
                runs.append((text, [parameters]))
        return [run for runs in by_table.values() for run in runs]

    def _statement(self, operation: Operation) -> tuple[str, _Parameters]:
        match operation:
            case Insert(table, row):
                return self._text("insert", table, (), tuple(row)), tuple(row.values())
            case Upsert(table, key, row, newest):
                rest = {name: value for name, value in row.items() if name not in key}
                text = self._text("upsert", table, tuple(key), tuple(rest), newest)
                return text, (*key.values(), *rest.values())
            case Update(table, key, changes, additions):
                text = self._text("update", table, tuple(key), tuple(changes), tuple(additions))
                return text, (*changes.values(), *additions.values(), *key.values())
            case Delete(table, key):
                return self._text("delete", table, tuple(key)), tuple(key.values())

    def _text(
        self,
        kind: str,
        table: str,
        key: tuple[str, ...],
        row: tuple[str, ...] = (),
        more: tuple[str, ...] = (),
    ) -> str:
        shape = (kind, table, key, row, more)
        text = self._texts.get(shape)
        if text is None:
            name = self._tables.get(table)
            if name is None:
                message = f"there is no table {table!r} in this projection"
                raise LookupError(message)
            build = {"insert": _insert, "upsert": _upsert, "update": _update, "delete": _delete}
            text = self._texts[shape] = build[kind](name, key, row, more)
        return text


def execute(connection: sqlite3.Connection, runs: Iterable[Run]) -> None:
    """Execute what `Statements.batch` made."""
    for text, parameters in runs:
        if len(parameters) == 1:
            connection.execute(text, parameters[0])
        else:
            connection.executemany(text, parameters)


_Names = tuple[str, ...]


def _insert(table: str, key: _Names, row: _Names, more: _Names) -> str:
    del more
    columns = [*key, *row]
    names = ", ".join(map(quoted, columns))
    return f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608


def _upsert(table: str, key: _Names, row: _Names, newest: _Names) -> str:
    insert = _insert(table, key, row, ())
    target = ", ".join(map(quoted, key))
    if not row:
        return f"{insert} ON CONFLICT ({target}) DO NOTHING"
    changes = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in row)
    text = f"{insert} ON CONFLICT ({target}) DO UPDATE SET {changes}"
    if newest:
        incoming = ", ".join(f"excluded.{quoted(name)}" for name in newest)
        known = ", ".join(f"{table}.{quoted(name)}" for name in newest)
        text += f" WHERE ({incoming}) >= ({known})"
    return text


def _update(table: str, key: _Names, changes: _Names, additions: _Names) -> str:
    parts = [f"{quoted(name)} = ?" for name in changes]
    parts += [f"{quoted(name)} = coalesce({quoted(name)}, 0) + ?" for name in additions]
    return f"UPDATE {table} SET {', '.join(parts)}{_where(key)}"  # noqa: S608


def _delete(table: str, key: _Names, row: _Names, more: _Names) -> str:
    del row, more
    return f"DELETE FROM {table}{_where(key)}"  # noqa: S608


def _where(key: _Names) -> str:
    return " WHERE " + " AND ".join(f"{quoted(name)} IS ?" for name in key)
