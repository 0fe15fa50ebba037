"""kindlm's own HTTP: what agents under test and Ollama are reached by.

httpx is used here and where its clients are used, so that a successor with the same interface can
take its place.
"""

from __future__ import annotations

import functools
import ssl

import httpx

__all__ = ["UNREACHABLE", "open_client"]

UNREACHABLE = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError)
"""What a client raises when no whole answer comes."""


def open_client(max_connections: int) -> httpx.AsyncClient:
    """Open a client without a timeout of its own that follows no redirects.

    Proxies and certificates of the environment are used as usual. A client's pool gets slow when
    many connections wait in it: several clients of few connections do better.
    """
    return httpx.AsyncClient(
        verify=_tls_context(),
        timeout=None,  # noqa: S113 - callers bound the whole exchange, body included
        limits=httpx.Limits(
            max_connections=max_connections, max_keepalive_connections=max_connections
        ),
        follow_redirects=False,
    )


@functools.cache
def _tls_context() -> ssl.SSLContext:
    """Load certificates once, which takes 25 ms: the system's own beside those of httpx."""
    context = httpx.create_ssl_context()
    context.load_default_certs()
    return context
