"""Compares the tables, indexes, triggers and views of a file with those that this code creates.

A foreign trigger on a table changes what is folded into it, and so does a table with a computed
column in place of ours. So nothing is written into such a file.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from kindlm_migrations import EVENT_LOG
from kindlm_store.store_errors import ForeignSchemaError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

    from kindlm_store.projecting import Projection

_NAMED = re.compile(r'CREATE (TABLE|INDEX|TRIGGER|VIEW) "?(\w+)')
_MIGRATIONS = "_sqlite_migrations"
"""The table in which sqlite-utils notes migrations, with an index that it makes itself."""


class SchemaProblem(NamedTuple):
    """Something in the schema of a file that is not as this code makes it.

    Attributes:
        kind: What it is.
        name: Its name.
        state: Not of this code; of this code, but other than it is made; or not there.
        projection: The projection that it belongs to: it can be made anew. None for all others.
    """

    kind: str
    name: str
    state: Literal["foreign", "changed", "missing"]
    projection: str | None

    @property
    def can_be_made(self) -> bool:
        """Whether it can be made from the events."""
        is_view = (self.kind, self.state) == ("view", "missing")
        return self.projection is not None or is_view


# What changes nothing that is written, and lacks in nothing that is read.
_HARMLESS = {("table", "foreign"), ("index", "missing"), ("trigger", "missing")}


class SchemaGuard:
    """Refuses to write into a file whose schema is not as this code makes it.

    Args:
        path: The file, for the error.
        projections: The projections of this code.
        repair: Whether what `can_be_made` may be missing or changed: a rebuild makes it.
    """

    def __init__(self, path: Path, projections: Sequence[Projection], *, repair: bool) -> None:
        self._path = path
        self._projections = tuple(projections)
        self._repair = repair
        self._seen: int | None = None

    def check(self, connection: sqlite3.Connection) -> None:
        """Look at the schema, unless it is the one that was looked at last.

        Raises:
            ForeignSchemaError: Something in it is foreign or changed, or what is read is missing.
        """
        version = connection.execute("PRAGMA schema_version").fetchone()[0]
        if version == self._seen:
            return
        problems = [
            problem
            for problem in schema_problems(connection, self._projections)
            if (problem.kind, problem.state) not in _HARMLESS
            and not (self._repair and problem.can_be_made)
        ]
        if problems:
            raise ForeignSchemaError(self._path, problems)
        self._seen = version


def schema_problems(
    connection: sqlite3.Connection, projections: Sequence[Projection]
) -> list[SchemaProblem]:
    """Return what of the schema is not as this code makes it.

    Of a projection in another version than this code has, only the names are known.
    """
    # One statement each, so that a swap of tables in between is noticed.
    found = {
        name: (kind, table, sql.strip())
        for kind, name, table, sql in connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL"
        )
    }
    versions: dict[str, int] = {}
    others: set[str] = {_MIGRATIONS}
    known = {projection.name: projection.version for projection in projections}
    for name, version, *lists in connection.execute(
        "SELECT name, version, tables, views FROM projections"
    ):
        versions[name] = version
        if known.get(name) != version:
            for names in lists:
                with suppress(ValueError, TypeError):
                    others.update(json.loads(names))
    made = _made([p for p in projections if versions.get(p.name) == p.version])
    problems = []
    for name, (kind, statement, projection) in made.items():
        if name not in found:
            problems.append(SchemaProblem(kind, name, "missing", projection))
        elif (found[name][0], found[name][2]) != (kind, statement):
            problems.append(SchemaProblem(found[name][0], name, "changed", projection))
    for name, (kind, table, _) in found.items():
        is_known = name in made or {
            "index": table in others,
            "view": name in others,
            "table": name in others or name.startswith("sqlite_"),
        }.get(kind)
        if not is_known:
            problems.append(SchemaProblem(kind, name, "foreign", None))
    return problems


def make_views(connection: sqlite3.Connection) -> None:
    """Make the views of the event log that are missing."""
    for statement in EVENT_LOG:
        if statement.strip().startswith("CREATE VIEW"):
            connection.execute(statement.replace("CREATE VIEW", "CREATE VIEW IF NOT EXISTS", 1))


def _made(projections: Sequence[Projection]) -> dict[str, tuple[str, str, str | None]]:
    """What is made, by its name: its kind, the statement, and the projection that it is of."""
    made: dict[str, tuple[str, str, str | None]] = {}
    for statement in EVENT_LOG:
        match = _NAMED.match(statement.strip())
        assert match is not None
        made[match[2]] = match[1].lower(), statement.strip(), None
    for projection in projections:
        for kind, statements in (
            ("table", projection.tables),
            ("index", projection.indexes),
            ("view", projection.create_views()),
        ):
            for name, sql in statements.items():
                made[name] = kind, sql.strip(), projection.name
    return made
