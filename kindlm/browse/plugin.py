"""The Datasette plugin: pages of the history, and links to them from tables and menus.

It does nothing for databases that are no histories. To Datasette's own pages, it adds:

- a Content-Security-Policy, so that a script in recorded text could neither run nor send anything
  if Datasette failed to escape it. Scripts of templates get a nonce when the template is compiled,
  since its source never contains data.
- visible control characters, in each value that a template shows: in a cell, a link, a facet or the
  title.

kindlm's own pages already have both, with a stricter policy.
"""

from __future__ import annotations

import re
import secrets
import sqlite3
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from datasette import hookimpl  # type: ignore[import-untyped]
from jinja2 import Environment
from jinja2.ext import Extension
from markupsafe import Markup, escape

from kindlm.browse import routes
from kindlm.browse.datasette_server import App, Message, Receive, Send
from kindlm.browse.descriptions import VIEW_DESCRIPTIONS, metadata
from kindlm.browse.routes import (
    ACCOUNT,
    PREFIX,
    Addresses,
    histories,
    is_about_history,
    is_history,
    may_read,
)
from kindlm.reports.untrusted import visible

if TYPE_CHECKING:
    from datasette.app import Datasette  # type: ignore[import-untyped]

_SCRIPT = re.compile(r"<script(?=[\s>])", re.IGNORECASE)

_STYLE = "<style>body pre#sql-query { white-space: pre-wrap; overflow-wrap: anywhere; }</style>"
"""Wraps long lines of a query, which Datasette does not."""

_nonce: ContextVar[str | None] = ContextVar("kindlm_nonce", default=None)
"""The nonce of a page about a history, None for other pages."""

_POLICY = (
    "default-src 'none'; script-src 'nonce-{}'; style-src 'self' 'unsafe-inline'"
    "; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'"
    "; frame-ancestors 'none'"
)
"""The policy of Datasette's pages, which have inline styles and images in them."""


class Guard(Extension):
    """Adds the nonce of the page to each script of a template, and makes its values visible."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        environment.globals["kindlm_nonce"] = _attribute
        environment.finalize = _shown

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """Return the source of a template with a call for the nonce in each script tag."""
        del name, filename
        styled = source.replace("</head>", f"{_STYLE}</head>")
        return _SCRIPT.sub(r"\g<0>{{ kindlm_nonce() }}", styled)


def _attribute() -> Markup:
    nonce = _nonce.get()
    return Markup("") if nonce is None else Markup(' nonce="{}"').format(nonce)


def _shown(value: object) -> object:
    """Return a value of a template, on pages about histories with visible control characters."""
    if _nonce.get() is None or not isinstance(value, str):
        return value
    text = visible(str(value))
    return Markup(text) if isinstance(value, Markup) else text  # noqa: S704 - it was safe before


def _guarded(datasette: Datasette, app: App) -> App:
    """Return an ASGI application whose responses about histories are safe to show."""

    async def respond(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _needs_guard(datasette, scope["path"]):
            await app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        guards = {
            b"x-content-type-options": b"nosniff",
            b"content-security-policy": _POLICY.format(nonce).encode("ascii"),
        }

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                present = {name.lower() for name, _ in headers}
                headers += [guard for guard in guards.items() if guard[0] not in present]
                message = {**message, "headers": headers}
            await send(message)

        # A plugin may request another page while it renders one.
        before = _nonce.set(nonce)
        try:
            await app(scope, receive, send_guarded)
        finally:
            _nonce.reset(before)

    return respond


def _needs_guard(datasette: Datasette, path: str) -> bool:
    base = datasette.setting("base_url")
    path = "/" + path.removeprefix(base).lstrip("/")
    if path == PREFIX or path.startswith(f"{PREFIX}/"):
        return False
    return is_about_history(datasette, path.split("/", 2)[1].partition(".")[0])


_ADDRESS = re.compile(r"\s*https?://")
"""Matches all that Datasette turns into a link."""

_LONGEST_VALUE = 50_000_000
"""In bytes: five times the largest recorded answer of an agent."""

_LINKED = ("run", "execution")
"""The columns whose values link to the page of that name."""


@hookimpl  # type: ignore[untyped-decorator]
def register_routes() -> list[tuple[str, Any]]:
    """Return the pages with the patterns of their paths."""
    return routes.ROUTES


@hookimpl  # type: ignore[untyped-decorator]
def get_metadata(datasette: Datasette) -> dict[str, Any]:
    """Return the descriptions of the tables of each history."""
    return {"databases": {name: metadata() for name in histories(datasette)}}


@hookimpl  # type: ignore[untyped-decorator]
def prepare_connection(conn: sqlite3.Connection, database: str, datasette: Datasette) -> None:
    """Limit the memory that a query can use for a value."""
    if is_history(datasette, database):
        conn.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)


@hookimpl  # type: ignore[untyped-decorator]
def prepare_jinja2_environment(env: Environment) -> None:
    """Guard Datasette's templates."""
    env.add_extension(Guard)


@hookimpl  # type: ignore[untyped-decorator]
def asgi_wrapper(datasette: Datasette) -> Callable[[App], App]:
    """Return the guard of Datasette's own pages of a history."""
    return lambda app: _guarded(datasette, app)


@hookimpl  # type: ignore[untyped-decorator]
def skip_csrf(datasette: Datasette, scope: Message) -> bool:
    """Skip Datasette's CSRF token for reviews: `sent_by_own_page` checks their origin."""
    return datasette in routes.reviewers and scope["path"].startswith(f"{PREFIX}/")


@hookimpl  # type: ignore[untyped-decorator]
def menu_links(datasette: Datasette, actor: dict[str, Any] | None) -> Any:
    """Return links for the menu of every page: to the runs of each history, and to the account."""

    async def links() -> list[dict[str, str | None]]:
        found = histories(datasette)
        runs: list[dict[str, str | None]] = [
            {
                "href": Addresses(datasette, name).page("runs"),
                "label": "Runs" if len(found) == 1 else f"Runs of {name}",
            }
            for name in found
            if await may_read(datasette, actor, name)
        ]
        if actor is None or ACCOUNT not in actor:
            return runs
        person, account = actor[ACCOUNT]
        return [*runs, {"href": account, "label": f"{person} (account)"}]

    return links


@hookimpl  # type: ignore[untyped-decorator]
def render_cell(
    value: Any, column: str, table: str | None, database: str, datasette: Datasette
) -> Markup | None:
    """Return the HTML of a value of a history, None if Datasette's own is fine.

    Ids of runs and executions link to their pages. URLs become plain text, since an agent may have
    written them.
    """
    if not isinstance(value, str) or not is_history(datasette, database):
        return None
    if column not in _LINKED or (table is not None and table not in VIEW_DESCRIPTIONS):
        if not _ADDRESS.match(value):
            return None
        most = datasette.setting("truncate_cells_html")
        return escape(f"{value[:most]}…" if most and len(value) > most else value)
    page = Addresses(datasette, database).page(column, value)
    return Markup('<a href="{}">{}</a>').format(page, value)
