"""Answers about a history, made safe on their way out; those about other databases stay.

The pages of kindlm itself need none of it: they are made safe, and have a stricter policy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from kindlm.browse.addresses import PREFIX
from kindlm.browse.ours import is_about_history
from kindlm.browse.page_policy import page_nonce, page_policy
from kindlm.browse.page_text import visible_page

if TYPE_CHECKING:
    from datasette.app import Datasette  # type: ignore[import-untyped]

__all__ = ["App", "guarded"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"})

_POLICY = b"content-security-policy"

_STYLE = "<style>body pre#sql-query { white-space: pre-wrap; overflow-wrap: anywhere; }</style>"
"""Datasette breaks no line of a query, and the page is as wide then as the longest of them."""


def guarded(datasette: Datasette, app: App) -> App:
    """Return an ASGI application whose answers about histories are safe to look at."""

    async def answered(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in _METHODS:
            # Datasette has no answer to these but an error of its own.
            allowed = [(b"allow", ", ".join(sorted(_METHODS)).encode("ascii"))]
            await send({"type": "http.response.start", "status": 405, "headers": allowed})
            await send({"type": "http.response.body", "body": b""})
            return
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
            if _is_page(headers):
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


def _is_page(headers: list[tuple[bytes, bytes]]) -> bool:
    return (_value(headers, b"content-type") or b"").lower().startswith(b"text/html")


def _value(headers: list[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    return next((value for found, value in headers if found.lower() == name), None)


def _with(
    headers: list[tuple[bytes, bytes]], name: bytes, value: bytes
) -> list[tuple[bytes, bytes]]:
    return headers if _value(headers, name) is not None else [*headers, (name, value)]
