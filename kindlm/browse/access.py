"""Which databases of a Datasette are histories of kindlm, and who may read them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from datasette.utils import tilde_decode  # type: ignore[import-untyped]
from datasette.utils.asgi import Forbidden  # type: ignore[import-untyped]

from kindlm_store import OpenError, open_reader

if TYPE_CHECKING:
    from datasette.app import Datasette  # type: ignore[import-untyped]


_OF_DATASETTE = frozenset({"_memory", "_internal"})
"""Databases that Datasette has of its own."""


def histories(datasette: Datasette) -> list[str]:
    """Return the names of the databases that are histories."""
    return [name for name in datasette.databases if is_history(datasette, name)]


def is_history(datasette: Datasette, database: str) -> bool:
    """Tell whether a database of that name is there and is a history."""
    found = datasette.databases.get(database)
    return found is not None and found.path is not None and _is_history(str(found.path))


def is_about_history(datasette: Datasette, segment: str) -> bool:
    """Tell whether pages below the first segment of a path are about a history.

    Pages about no database in particular are where there is nothing but histories.
    """
    route = tilde_decode(segment)
    for name, database in datasette.databases.items():
        if database.route == route and name not in _OF_DATASETTE:
            return is_history(datasette, name)
    others = [name for name in datasette.databases if name not in _OF_DATASETTE]
    return bool(others) and all(is_history(datasette, name) for name in others)


async def may_read(datasette: Datasette, actor: dict[str, Any] | None, database: str) -> bool:
    """Tell whether somebody may read all of a history: its pages show what is in every table."""
    # Without a rule about a table, the rule about its database counts.
    wanted = [("view-table", (database, "contents")), ("view-database", database), "view-instance"]
    try:
        await datasette.ensure_permissions(actor, wanted)
    except Forbidden:
        return False
    return True


@lru_cache(maxsize=64)
def _is_history(path: str) -> bool:
    # Asked for each cell of each table that is shown: a file does not change what it is.
    try:
        with closing(open_reader(path)) as connection:
            connection.execute("SELECT id FROM runs LIMIT 1")
            return True
    except (OpenError, sqlite3.Error):
        return False
