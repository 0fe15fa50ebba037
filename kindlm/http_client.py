"""kindlm's own HTTP: what agents under test and Ollama are reached by.

httpx is used here and where its clients are used, so that a successor with the same interface can
take its place.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

__all__ = ["UNREACHABLE", "ClientPool"]

UNREACHABLE = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError)
"""What a client raises when no whole answer comes."""

_CLIENTS = 8
_CONNECTIONS = 4


class ClientPool:
    """Clients to share: several of few connections, as one of many gets slow.

    They have no timeout of their own, follow no redirects and keep no cookies. Proxies and
    certificates of the environment are used as usual.
    """

    def __init__(self) -> None:
        self._clients: list[httpx.AsyncClient] = []
        self._in_flight: list[int] = []

    @contextmanager
    def borrow(self) -> Iterator[httpx.AsyncClient]:
        """Lend the client for one request: one with a free connection, else the idlest."""
        index = self._idlest()
        self._in_flight[index] += 1
        try:
            yield self._clients[index]
        finally:
            self._in_flight[index] -= 1

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients:
            await client.aclose()

    def _idlest(self) -> int:
        free = (index for index, busy in enumerate(self._in_flight) if busy < _CONNECTIONS)
        index = next(free, None)
        if index is not None:
            return index
        if len(self._clients) < _CLIENTS:
            self._clients.append(_open_client())
            self._in_flight.append(0)
            return len(self._clients) - 1
        return min(range(_CLIENTS), key=self._in_flight.__getitem__)


def _open_client() -> httpx.AsyncClient:
    return httpx.AsyncClient(
        verify=_tls_context(),
        timeout=None,  # noqa: S113 - callers bound the whole exchange, body included
        limits=httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS),
        follow_redirects=False,
        # What one conversation is told to remember is no other one's business.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    )


@functools.cache
def _tls_context() -> ssl.SSLContext:
    """Load certificates once, which takes 25 ms: the system's own beside those of httpx."""
    context = httpx.create_ssl_context()
    context.load_default_certs()
    return context
