"""The Datasette plugin: pages of the history, and links to them from tables and menus.

It does nothing if no database is a history.

`guarded` makes responses about a history safe, and leaves those about other databases alone.
kindlm's own pages do not need it: they are safe already, and have a stricter policy. Datasette's
own pages get

- a content security policy. These pages escape what agents said. If something were not escaped, its
  script would not run, and nothing could be sent elsewhere. Datasette's own scripts get a nonce
  when a template is compiled: in its source, which never contains data.
- visible control characters. A value can be in many places of a page (a cell, a link, a facet, the
  title), so the whole page is rewritten.
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
    """Give the scripts of the page that is made meanwhile a new nonce, which cannot be guessed."""
    nonce = secrets.token_urlsafe(16)
    # Plugins can ask Datasette for another page while they make one.
    before = _nonce.set(nonce)
    try:
        yield nonce
    finally:
        _nonce.reset(before)


def page_policy(nonce: str) -> str:
    """Return a content security policy under which Datasette's pages work.

    Their styles are inline; images are their own, or written into the styles.
    """
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
    """Gives each script of a template the nonce of the page, on pages that have one."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        environment.globals["kindlm_nonce"] = _attribute

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """Return the source of a template with a place for the nonce in each script."""
        del name, filename
        return _SCRIPT.sub(r"\g<0>{{ kindlm_nonce() }}", source)


def _attribute() -> Markup:
    nonce = _nonce.get()
    return Markup("") if nonce is None else Markup(' nonce="{}"').format(nonce)


# Values are escaped in pages: `<` and `>` are those of tags. What a form sends back, and what is no
# text, stays as it is.
_PART = re.compile(
    r"<!--.*?-->|<(?P<name>script|style|textarea)\b.*?</(?P=name)\s*>|<[^>]*>|(?P<text>[^<]+)",
    re.DOTALL | re.IGNORECASE,
)


def visible_page(page: str) -> str:
    r"""Return an HTML document in whose texts controls, direction marks and the like are shown."""
    return _PART.sub(lambda found: visible(found["text"]) if found["text"] else found[0], page)


_POLICY = b"content-security-policy"

_STYLE = "<style>body pre#sql-query { white-space: pre-wrap; overflow-wrap: anywhere; }</style>"
"""Datasette breaks no line of a query, and the page is as wide then as the longest of them."""


def guarded(datasette: Datasette, app: App) -> App:
    """Return an ASGI application whose answers about histories are safe to look at."""

    async def answered(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _is_concerned(datasette, scope["path"]):
            with page_nonce() as nonce:
                await app(scope, receive, _Answer(page_policy(nonce), send).take)
            return
        await app(scope, receive, send)

    return answered


def _is_concerned(datasette: Datasette, path: str) -> bool:
    base = datasette.setting("base_url")
    path = "/" + path.removeprefix(base).lstrip("/")
    if path == PREFIX or path.startswith(f"{PREFIX}/"):
        return False
    return is_about_history(datasette, path.split("/", 2)[1].partition(".")[0])


class _Answer:
    """An answer on its way out. A page is held back until it is complete."""

    def __init__(self, policy: str, send: Send) -> None:
        self._policy = policy
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def take(self, message: Message) -> None:
        """Take a part of the answer, and send what can be sent."""
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
        """Make the page safe and return its headers. A policy that it has already is kept."""
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
    """Return what Datasette shows of the tables of each history."""
    return {"databases": {name: metadata() for name in histories(datasette)}}


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
def skip_csrf(datasette: Datasette, scope: Message) -> bool:
    """Tell Datasette that reviews are guarded without a token: by where a form was sent from."""
    return datasette in routes.reviewers and scope["path"].startswith(f"{PREFIX}/")


@hookimpl  # type: ignore[untyped-decorator]
def menu_links(datasette: Datasette, actor: dict[str, Any] | None) -> Any:
    """Return what leads from the menu of every page to the runs of each history, and out."""

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
    """Return what is shown of a value of a history, None where Datasette shows it well.

    Ids of runs and executions lead to their pages. What looks like an address elsewhere leads
    nowhere: an agent may have written it.
    """
    if not isinstance(value, str) or not is_history(datasette, database):
        return None
    page = _LEADS_TO.get(column)
    if page is None or (table is not None and table not in VIEW_DESCRIPTIONS):
        if not _ADDRESS.match(value):
            return None
        most = datasette.setting("truncate_cells_html")
        return escape(f"{value[:most]}…" if most and len(value) > most else value)
    return Markup('<a href="{}">{}</a>').format(page(Addresses(datasette, database), value), value)
