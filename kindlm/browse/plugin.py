"""The Datasette plugin: pages of the history, and links to them from tables and menus.

It does nothing for databases that are no histories. `guarded` adds to Datasette's own pages:

- a Content-Security-Policy, so that a script in recorded text could neither run nor send anything
  if Datasette failed to escape it. Scripts of templates get a nonce when the template is compiled,
  since its source never contains data.
- visible control characters, in the whole page: a value may be in a cell, a link, a facet or the
  title.

kindlm's own pages already have both, with a stricter policy.
"""

from __future__ import annotations

import re
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

_nonce: ContextVar[str | None] = ContextVar("kindlm_nonce", default=None)


@contextmanager
def page_nonce() -> Iterator[str]:
    """Set a new random nonce for the page that is rendered in this context."""
    nonce = secrets.token_urlsafe(16)
    # A plugin may request another page while it renders one.
    before = _nonce.set(nonce)
    try:
        yield nonce
    finally:
        _nonce.reset(before)


def page_policy(nonce: str) -> str:
    """Return a policy for Datasette's pages, which have inline styles and images in them."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src 'nonce-{nonce}'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        ]
    )


class Nonces(Extension):
    """Adds the nonce of the page, if it has one, to each script of a template."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        environment.globals["kindlm_nonce"] = _attribute

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """Return the source of a template with a call for the nonce in each script tag."""
        del name, filename
        return _SCRIPT.sub(r"\g<0>{{ kindlm_nonce() }}", source)


def _attribute() -> Markup:
    nonce = _nonce.get()
    return Markup("") if nonce is None else Markup(' nonce="{}"').format(nonce)


# Values are escaped, so each `<` begins a tag. The content of `textarea` must not change, since
# forms send it back.
_PART = re.compile(
    r"<!--.*?-->|<(?P<name>script|style|textarea)\b.*?</(?P=name)\s*>|<[^>]*>|(?P<text>[^<]+)",
    re.DOTALL | re.IGNORECASE,
)


def visible_page(page: str) -> str:
    """Return an HTML document with unreadable characters in its text written out."""
    return _PART.sub(lambda found: visible(found["text"]) if found["text"] else found[0], page)


_POLICY = b"content-security-policy"

_STYLE = "<style>body pre#sql-query { white-space: pre-wrap; overflow-wrap: anywhere; }</style>"
"""Wraps long lines of a query, which Datasette does not."""


def guarded(datasette: Datasette, app: App) -> App:
    """Return an ASGI application whose responses about histories are safe to show."""

    async def respond(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _needs_guard(datasette, scope["path"]):
            with page_nonce() as nonce:
                await app(scope, receive, _GuardedResponse(page_policy(nonce), send).take)
            return
        await app(scope, receive, send)

    return respond


def _needs_guard(datasette: Datasette, path: str) -> bool:
    base = datasette.setting("base_url")
    path = "/" + path.removeprefix(base).lstrip("/")
    if path == PREFIX or path.startswith(f"{PREFIX}/"):
        return False
    return is_about_history(datasette, path.split("/", 2)[1].partition(".")[0])


class _GuardedResponse:
    """Passes a response on, an HTML page when it is complete."""

    def __init__(self, policy: str, send: Send) -> None:
        self._policy = policy
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = _with(list(message.get("headers", [])), b"x-content-type-options", b"nosniff")
            message = {**message, "headers": headers}
            if (_value(headers, b"content-type") or b"").lower().startswith(b"text/html"):
                self._start = message
                return
        elif self._start is not None:
            self._body += message.get("body", b"")
            if message.get("more_body", False):
                return
            await self._send({**self._start, "headers": self._headers(self._start["headers"])})
            message = {"type": "http.response.body", "body": self._body}
        await self._send(message)

    def _headers(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Rewrite the page and return its headers. An existing policy is kept."""
        headers = _with(headers, _POLICY, self._policy.encode("ascii"))
        if _value(headers, b"content-encoding") is None:
            page = visible_page(self._body.decode("utf-8", "replace"))
            self._body = page.replace("<head>", f"<head>{_STYLE}", 1).encode()
            if self._body and _value(headers, b"content-length") is not None:
                headers = [header for header in headers if header[0].lower() != b"content-length"]
                headers.append((b"content-length", str(len(self._body)).encode("ascii")))
        return headers


def _value(headers: list[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    return next((value for found, value in headers if found.lower() == name), None)


def _with(
    headers: list[tuple[bytes, bytes]], name: bytes, value: bytes
) -> list[tuple[bytes, bytes]]:
    return headers if _value(headers, name) is not None else [*headers, (name, value)]


_ADDRESS = re.compile(r"\s*https?://")
"""Matches all that Datasette turns into a link."""

_LONGEST_VALUE = 50_000_000
"""In bytes: five times the largest recorded answer of an agent."""

_PAGES = {"run": Addresses.run, "execution": Addresses.execution}
"""The page that the value of a column links to."""


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
    """Add nonces to Datasette's templates."""
    env.add_extension(Nonces)


@hookimpl  # type: ignore[untyped-decorator]
def asgi_wrapper(datasette: Datasette) -> Callable[[App], App]:
    """Return the guard of Datasette's own pages of a history."""
    return lambda app: guarded(datasette, app)


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
                "href": Addresses(datasette, name).runs(),
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
    page = _PAGES.get(column)
    if page is None or (table is not None and table not in VIEW_DESCRIPTIONS):
        if not _ADDRESS.match(value):
            return None
        most = datasette.setting("truncate_cells_html")
        return escape(f"{value[:most]}…" if most and len(value) > most else value)
    return Markup('<a href="{}">{}</a>').format(page(Addresses(datasette, database), value), value)
