"""How a projection is declared: tables, views, and what each event type does to them.

A handler is a pure function from a recorded event to operations. It must give the same operations
for the same event whenever it is asked, since a rebuild asks it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kindlm_store.events import RecordedEvent

Value = str | int | float | bytes | None


@dataclass(frozen=True, slots=True)
class Insert:
    """Add a row; one with the same key is an error of the projection."""

    table: str
    row: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Upsert:
    """Add a row, or change the one that has the key.

    Attributes:
        table: Name of the table.
        key: Columns of the primary key, or of another unique index, with their values.
        row: The columns to write; those of the key may be among them.
        newest: Columns of `row` that order what is known: an existing row is changed only if they
            are, taken together, equal to or after what it has. For events of several journals,
            which arrive in any order: `("at", "id")`.
    """

    table: str
    key: Mapping[str, Value]
    row: Mapping[str, Value]
    newest: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Update:
    """Change the rows that have the key, if any.

    Attributes:
        table: Name of the table.
        key: Columns and values that the rows must have; None finds NULL.
        set: Columns and their new values.
        add: Columns and what is added to them; NULL counts as 0.
    """

    table: str
    key: Mapping[str, Value]
    set: Mapping[str, Value] = field(default_factory=dict)
    add: Mapping[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the rows that have the key, if any."""

    table: str
    key: Mapping[str, Value]


Operation = Insert | Upsert | Update | Delete


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a projection.

    Attributes:
        name: Its name; unique among the projections of a file.
        columns: Name → SQL type and constraints.
        primary_key: Columns of the primary key.
        foreign_keys: Column → table and column it refers to. For readers (Datasette links by
            them); not enforced, since the referred row may come later.
        indexes: Columns of each further index.
        clustered: Whether rows lie in the order of the primary key, in one B-tree instead of two:
            smaller for narrow rows without further indexes. SQLite calls it WITHOUT ROWID.
    """

    name: str
    columns: Mapping[str, str]
    primary_key: tuple[str, ...]
    foreign_keys: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    indexes: tuple[tuple[str, ...], ...] = ()
    clustered: bool = False

    def create(self, name: str | None = None) -> str:
        """The CREATE TABLE statement, under this or another name."""
        parts = [f"{quoted(column)} {kind}" for column, kind in self.columns.items()]
        parts.append(f"PRIMARY KEY ({_listed(self.primary_key)})")
        for column, (table, other) in self.foreign_keys.items():
            parts.append(
                f"FOREIGN KEY ({quoted(column)}) REFERENCES {quoted(table)}({quoted(other)})"
            )
        ending = " WITHOUT ROWID" if self.clustered else ""
        return f"CREATE TABLE {quoted(name or self.name)} ({', '.join(parts)}){ending}"

    def create_indexes(self, name: str | None = None, suffix: str = "") -> list[str]:
        """The CREATE INDEX statements, for the table under this or another name."""
        return [
            f"CREATE INDEX {quoted(index + suffix)}"
            f" ON {quoted(name or self.name)} ({_listed(columns)})"
            for index, columns in self.index_names().items()
        ]

    def index_names(self) -> dict[str, tuple[str, ...]]:
        """Name of each further index → its columns."""
        return {"_".join((self.name, *columns)): columns for columns in self.indexes}


@dataclass(frozen=True, slots=True)
class Projection:
    """A read model: tables folded from events, and views over them.

    Attributes:
        name: Its name; unique in a file.
        version: Increased with any change of tables, views or handlers: the projection is then
            folded anew from the first event when the log is opened.
        tables: What it folds into.
        handlers: Event type → what an event of it does.
        views: Name → SELECT statement.
    """

    name: str
    version: int
    tables: tuple[Table, ...]
    handlers: Mapping[str, Callable[[RecordedEvent], Iterable[Operation]]]
    views: Mapping[str, str] = field(default_factory=dict)

    def create_views(self) -> dict[str, str]:
        """The CREATE VIEW statements, by the names of the views."""
        return {
            name: f"CREATE VIEW {quoted(name)} AS {select}" for name, select in self.views.items()
        }


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))
