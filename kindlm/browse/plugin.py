"""The Datasette plugin: pages of the history, and the ways to them from tables and menus.

It is silent where no database is a history. Only what Datasette 0.65 and 1.0 both have is used.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from datasette import hookimpl  # type: ignore[import-untyped]
from jinja2 import Environment
from markupsafe import Markup, escape

from kindlm.browse import routes
from kindlm.browse.access import histories, is_history, may_read
from kindlm.browse.addresses import Addresses
from kindlm.browse.descriptions import VIEW_DESCRIPTIONS, metadata_of, tell
from kindlm.browse.guarding import App, Nonces, guarded

if TYPE_CHECKING:
    from datasette.app import Datasette  # type: ignore[import-untyped]


_ADDRESS = re.compile(r"\s*https?://")
"""What Datasette makes a link of, and more."""

_LONGEST_VALUE = 50_000_000
"""Bytes: five times the largest answer of an agent that is recorded."""

_LEADS_TO = {"run": Addresses.run, "execution": Addresses.execution}


@hookimpl  # type: ignore[untyped-decorator]
def register_routes() -> list[tuple[str, Any]]:
    """Return the pages, each with the pattern of its address."""
    return routes.ROUTES


@hookimpl  # type: ignore[untyped-decorator]
def get_metadata(datasette: Datasette) -> dict[str, Any]:
    """Return what a Datasette before 1.0 shows of the tables of each history."""
    return metadata_of(datasette)


@hookimpl  # type: ignore[untyped-decorator]
def startup(datasette: Datasette) -> Any:
    """Return what tells a Datasette since 1.0 the same."""

    async def started() -> None:
        await tell(datasette)

    return started


@hookimpl  # type: ignore[untyped-decorator]
def prepare_connection(conn: sqlite3.Connection, database: str, datasette: Datasette) -> None:
    """Bound what a query of anybody can ask of the memory of this machine."""
    if is_history(datasette, database):
        conn.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)


@hookimpl  # type: ignore[untyped-decorator]
def prepare_jinja2_environment(env: Environment) -> None:
    """Let the templates of Datasette name the nonce of a page."""
    env.add_extension(Nonces)


@hookimpl  # type: ignore[untyped-decorator]
def asgi_wrapper(datasette: Datasette) -> Callable[[App], App]:
    """Return what makes Datasette's own pages of a history safe to look at."""
    return lambda app: guarded(datasette, app)


@hookimpl  # type: ignore[untyped-decorator]
def menu_links(datasette: Datasette, actor: dict[str, Any] | None) -> Any:
    """Return what leads from the menu of every page to the runs of each history."""

    async def links() -> list[dict[str, str]]:
        found = histories(datasette)
        return [
            {
                "href": Addresses(datasette, name).runs(),
                "label": "Runs" if len(found) == 1 else f"Runs of {name}",
            }
            for name in found
            if await may_read(datasette, actor, name)
        ]

    return links


@hookimpl  # type: ignore[untyped-decorator]
def render_cell(
    value: Any, column: str, table: str | None, database: str, datasette: Datasette
) -> Markup | None:
    """Return what is shown of a value of a history, None where Datasette shows it well.

    Ids of runs and executions lead to their pages. What looks like an address elsewhere leads
    nowhere: an agent may have written it.
    """
    if not isinstance(value, str) or not is_history(datasette, database):
        return None
    page = _LEADS_TO.get(column)
    if page is None or (table is not None and table not in VIEW_DESCRIPTIONS):
        return _unlinked(value, datasette) if _ADDRESS.match(value) else None
    return Markup('<a href="{}">{}</a>').format(page(Addresses(datasette, database), value), value)


def _unlinked(value: str, datasette: Datasette) -> Markup:
    most = datasette.setting("truncate_cells_html")
    return escape(f"{value[:most]}…" if most and len(value) > most else value)
