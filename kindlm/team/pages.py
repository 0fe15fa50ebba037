"""Decides who may see the pages of a history server: a session, or a user that a proxy names.

`Pages` wraps Datasette. Without a person, it answers only the login page. It tells Datasette who
makes a request, and removes cookies and the `Authorization` header, so that Datasette's own logins
do not work.

A session is a cookie with the id of a token, an expiry, and a signature whose key is the hash of
the token. It does not contain the token. Each request looks the token up, so the session ends when
the token is revoked or expires.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from datasette.utils.asgi import Request, Response  # type: ignore[import-untyped]

from kindlm.browse.datasette_server import Message, Receive, Send
from kindlm.browse.descriptions import DATABASE, START_PAGE
from kindlm.browse.routes import (
    ACCOUNT,
    PREFIX,
    Actor,
    Addresses,
    posted,
    response,
    sent_by_own_page,
)
from kindlm.reports.pages.html_document import Document, Links, notice_page
from kindlm.team.protocol import is_loopback

if TYPE_CHECKING:
    from datasette.app import Datasette  # type: ignore[import-untyped]

    from kindlm.team.token_store import Grant, TokenStore

LOGIN = "/login"
LOGOUT = "/logout"

_SESSION_S = 30 * 24 * 3600
_LONGEST_FORM = 5_000
_LONGEST_NAME = 200
_FAILURES = 10
"""The limit of wrong tokens a minute from one address."""

_SAFE = re.compile(r"/(?!/)[!-\[\]-~]{0,2000}")
"""A path on this server; browsers read `//` and a backslash as the beginning of a host."""

_SESSION = re.compile(r"([0-9a-f]{1,64})\.([0-9]{1,12})\.([0-9a-f]{64})", re.ASCII)
"""A cookie: the id of a token, the end of the session, and a signature of both."""

Header = tuple[bytes, bytes]

_READS = ("GET", "HEAD")


def _person(name: str, *, may_review: bool, by_header: bool = False) -> Actor:
    """Return a person who may see the pages, as an actor of Datasette without special rights.

    `name` is that of the token, or the one that the proxy sent (`by_header`); reviews record it.
    """
    return {
        "id": f"kindlm:{name}",
        "name": name,
        "may_review": may_review,
        "by_header": by_header,
        ACCOUNT: (name, LOGIN),
    }


def reviewing(actor: Actor | None) -> str | None:
    """Return the name under which an actor may review executions, None if they may only read."""
    return actor["name"] if actor is not None and actor["may_review"] else None


class Pages:
    """An ASGI application: the pages of a Datasette, for people who may see them.

    `header` is the header in which a trusted reverse proxy names a person, None without a proxy.
    """

    def __init__(self, datasette: Datasette, tokens: TokenStore, header: str | None = None) -> None:
        self._datasette = datasette
        self._app = datasette.app()
        self._tokens = tokens
        self._header = None if header is None else header.lower().encode("ascii")
        self._minute = 0
        self._failures: Counter[str] = Counter()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":  # the lifespan: the server speaks no other protocol
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        person = await self._person_of(request)
        answer = await self._answer(request, person)
        if answer is not None:
            await answer.asgi_send(send)
            return
        assert person is not None

        async def send_uncached(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = _without(message["headers"], _CACHING)
                message = {**message, "headers": [*headers, (_CACHING, b"private, no-store")]}
            await send(message)

        inner = {
            **scope,
            "headers": _without(scope["headers"], *_CREDENTIALS),
            "actor": person,
        }
        await self._app(inner, receive, send_uncached)

    async def _answer(self, request: Request, person: Actor | None) -> Response | None:
        """Return an answer of this module, None if Datasette is to answer."""
        if request.path == LOGIN:
            if request.method in _READS:
                return self._login_page(person, request.args.get("next") or "")
            return await self._log_in(request)
        if request.path == LOGOUT and _is_own_form(request):
            answer = _redirect(LOGIN)
            # The browser's back button must not show pages again.
            answer.headers["clear-site-data"] = '"cache"'
            _set_cookie(answer, request, "", 0)
            return answer
        if person is None:
            if request.method in _READS and "text/html" in request.headers.get("accept", ""):
                return _redirect(f"{LOGIN}?{urlencode({'next': request.full_path})}")
            return self._login_page(None, "", "Log in to see this history.")
        if request.path == "/":
            return _redirect(START_PAGE)
        if request.method not in _READS and not request.path.startswith(f"{PREFIX}/"):
            return _refused(403, "These pages are read-only.")
        return None

    async def _person_of(self, request: Request) -> Actor | None:
        if self._header is not None:
            named = [value for name, value in request.scope["headers"] if name == self._header]
            if named:
                return _named(named)
        written = request.headers.get("cookie", "").split(";")
        cookies = dict(each.strip().partition("=")[::2] for each in written)
        parts = _SESSION.fullmatch(cookies.get(_cookie_name(request), ""))
        if parts is None or int(parts[2]) < time.time():
            return None
        token_id, end, signature = parts.groups()
        # This blocks while another process writes to the file of the tokens.
        grant = await asyncio.to_thread(self._tokens.by_id, token_id)
        if grant is None or not hmac.compare_digest(_signature(grant, end), signature):
            return None
        return _granted(grant)

    def _login_page(self, person: Actor | None, after: str, problem: str | None = None) -> Response:
        document = Document(
            "login.html",
            "Account" if person else "Log in",
            {"actor": person, "next": after, "problem": problem},
            styles=("runs", "login"),
            status=401 if problem else 200,
        )
        links = Addresses(self._datasette, DATABASE, person) if person else Links()
        return response(document, links)

    async def _log_in(self, request: Request) -> Response:
        if not _is_own_form(request):
            return _refused(403, "Only the login page of this server logs in.")
        form = await posted(request, _LONGEST_FORM)
        if form is None:
            return _refused(413, "A login has nothing but a token.")
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._failures = minute, Counter()
        client = self._client(request)
        after = form.get("next", "")
        if self._failures[client] >= _FAILURES:
            return _refused(429, "Too many wrong tokens. Wait a minute.")
        token = form.get("token", "").strip()
        grant = await asyncio.to_thread(self._tokens.grant_of, token)
        if isinstance(grant, str):
            self._failures[client] += 1
            return self._login_page(None, after, grant)
        if _granted(grant) is None:
            needs = "Pages need a token with the scope pull that is for all projects."
            return self._login_page(None, after, needs)
        answer = _redirect(after if _SAFE.fullmatch(after) else START_PAGE)
        end = str(int(time.time()) + _SESSION_S)
        _set_cookie(answer, request, f"{grant.id}.{end}.{_signature(grant, end)}", _SESSION_S)
        return answer

    def _client(self, request: Request) -> str:
        """Return the address of a client, as named by a trusted or local proxy if there is one."""
        peer: str = (request.scope.get("client") or ("",))[0]
        if self._header is None and not is_loopback(peer):
            return peer
        forwarded = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
        return forwarded[:_LONGEST_ADDRESS] or peer


_LONGEST_ADDRESS = 45
"""Characters of the longest IPv6 address, which ends with an IPv4 address."""

_CREDENTIALS = (b"cookie", b"authorization")
_CACHING = b"cache-control"


def _without(headers: Iterable[Header], *names: bytes) -> list[Header]:
    return [header for header in headers if header[0].lower() not in names]


def _granted(grant: Grant) -> Actor | None:
    if grant.project is not None or "pull" not in grant.scopes:
        return None
    return _person(grant.name, may_review="review" in grant.scopes)


def _named(values: list[bytes]) -> Actor | None:
    """Return the person that a header names; None with two headers: a client may have sent one."""
    name = values[0].decode("utf-8", "replace").strip()
    if len(values) != 1 or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        return None
    return _person(name, may_review=True, by_header=True)


def _signature(grant: Grant, end: str) -> str:
    return hmac.new(grant.key, f"session {grant.id} {end}".encode(), "sha256").hexdigest()


def _is_own_form(request: Request) -> bool:
    return request.method == "POST" and sent_by_own_page(request.headers)


def _is_secure(request: Request) -> bool:
    """Return whether the browser uses HTTPS; a false claim only gives a useless cookie."""
    return "https" in (request.scheme, request.headers.get("x-forwarded-proto"))


def _cookie_name(request: Request) -> str:
    # Browsers let no other host set a cookie with this prefix.
    return "__Host-kindlm" if _is_secure(request) else "kindlm"


def _set_cookie(answer: Response, request: Request, value: str, max_age: int) -> None:
    answer.set_cookie(
        _cookie_name(request),
        value,
        max_age=max_age,
        secure=_is_secure(request),
        httponly=True,
        samesite="lax",  # links from other sites lead to the page; forms need a page of this one
    )


def _redirect(where: str) -> Response:
    return Response.redirect(where, status=303, headers={"cache-control": "no-store"})


def _refused(status: int, message: str) -> Response:
    return response(notice_page("Access denied", message, status=status), Links())
