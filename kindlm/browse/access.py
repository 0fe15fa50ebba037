"""Which databases of a Datasette are histories of kindlm, and who may read them.

A process can read on in a file that was deleted, moved or replaced. Its pages would show an old
state, so nothing is served of a history that is no longer where it was.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasette.utils import tilde_decode  # type: ignore[import-untyped]

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
    if hasattr(datasette, "allowed"):
        from datasette.resources import TableResource  # type: ignore[import-untyped]

        resource = TableResource(database=database, table="contents")
        allowed: bool = await datasette.allowed(action="view-table", resource=resource, actor=actor)
        return allowed
    # Before 1.0: who is told nothing about a table is asked about its database.
    from datasette.utils.asgi import Forbidden  # type: ignore[import-untyped]

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


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def only_while_there(database: Path, app: App) -> App:
    """Return an ASGI application that answers as long as the file is the one that it is now."""
    opened = _identity(database)
    said = f"{database} was moved, deleted or replaced. Start kindlm browse again.\n"
    refusal = said.encode("utf-8", "backslashreplace")

    async def answered(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or _identity(database) == opened:
            await app(scope, receive, send)
            return
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": refusal})

    return answered


def _identity(database: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(database)  # noqa: PTH116 - asked for with each request
    except OSError:
        return None
    return found.st_dev, found.st_ino
