"""Compares the tables, indexes, triggers and views of a file with those that this code creates.

A foreign trigger, or a table that was replaced, may change what is written. So nothing is written
into such a file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from kindlm_migrations import EVENT_LOG
from kindlm_store.projecting import Projection, names_in
from kindlm_store.store_errors import OpenError


class SchemaProblem(NamedTuple):
    """A table, index, trigger or view that differs from what this code creates.

    This code does not create a foreign one. That of a `projection` can be made again.
    """

    kind: str
    name: str
    state: Literal["foreign", "changed", "missing"]
    projection: str | None


class ForeignSchemaError(OpenError):
    """The schema has foreign or changed parts, or lacks some, so writing is not safe."""

    def __init__(self, path: Path, problems: Sequence[SchemaProblem]) -> None:
        kind, name, state, _ = problems[0]
        reason = f"lacks the {kind}" if state == "missing" else f"has a {state} {kind}"
        more = f", and {len(problems) - 1:,} more" if len(problems) > 1 else ""
        super().__init__(path, f"{reason} {name!r}{more}")
        self.problems = tuple(problems)


# These affect neither writes nor reads.
_HARMLESS = {("table", "foreign"), ("index", "missing"), ("trigger", "missing")}


@dataclass(slots=True)
class SchemaGuard:
    """Refuses to write into a file whose schema differs from what this code creates.

    With `repair`, it allows problems of projections, which a rebuild removes.
    """

    path: Path
    projections: Sequence[Projection]
    repair: bool
    _seen: int | None = None

    def check(self, connection: sqlite3.Connection) -> None:
        """Check the schema, unless it is the one that was checked last.

        Raises `ForeignSchemaError` for a problem that is not harmless.
        """
        version = connection.execute("PRAGMA schema_version").fetchone()[0]
        if version == self._seen:
            return
        problems = [
            problem
            for problem in schema_problems(connection, self.projections)
            if (problem.kind, problem.state) not in _HARMLESS
            and not (self.repair and problem.projection)
        ]
        if problems:
            raise ForeignSchemaError(self.path, problems)
        self._seen = version


def schema_problems(
    connection: sqlite3.Connection, projections: Sequence[Projection]
) -> list[SchemaProblem]:
    """Return the differences between the schema and what this code creates.

    For a projection in another version than this code has, only names are compared.
    """
    found = {
        name: (kind, table, sql.strip())
        for kind, name, table, sql in connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL"
        )
    }
    versions: dict[str, int] = {}
    others = {"_sqlite_migrations"}  # where sqlite-utils records them
    known = {projection.name: projection.version for projection in projections}
    for name, version, *lists in connection.execute(
        "SELECT name, version, tables, views FROM projections"
    ):
        versions[name] = version
        if known.get(name) != version:
            for names in lists:
                others |= names_in(names)
    # By name: the kind, the statement, and the projection.
    made: dict[str, tuple[str, str, str | None]] = {}
    for statement in EVENT_LOG:
        _, kind, name, _ = statement.split(maxsplit=3)
        made[name] = kind.lower(), statement.strip(), None
    for projection in projections:
        if versions.get(projection.name) == projection.version:
            for name, (kind, sql) in projection.parts.items():
                made[name] = kind, sql.strip(), projection.name
    problems = []
    for name, (kind, statement, owner) in made.items():
        if name not in found:
            problems.append(SchemaProblem(kind, name, "missing", owner))
        elif (found[name][0], found[name][2]) != (kind, statement):
            problems.append(SchemaProblem(found[name][0], name, "changed", owner))
    for name, (kind, table, _) in found.items():
        is_known = name in made or {
            "index": table in others,
            "view": name in others,
            "table": name in others or name.startswith("sqlite_"),
        }.get(kind)
        if not is_known:
            problems.append(SchemaProblem(kind, name, "foreign", None))
    return problems
