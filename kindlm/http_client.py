"""kindlm's own HTTP client, for agents under test and Ollama.

Only this module and the users of its clients use httpx, so that a successor with the same interface
can replace it.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.request import getproxies

import aiohttp
import httpx
import yarl
from aiohttp.abc import AbstractCookieJar

UNREACHABLE = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError)
"""What a client raises when no whole answer comes."""

# As the SDKs' own clients have them.
_CONNECTIONS = 1000
_KEPT_ALIVE_S = 5.0
_MOST_OF_A_HEADER_BYTES = 65_536

_ADDED_BY_AIOHTTP = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


def open_client() -> httpx.AsyncClient:
    """Return a client that has no timeout of its own, follows no redirects and keeps no cookies.

    Proxies and certificates of the environment are used as usual; with a proxy that cannot be used,
    every request fails.
    """
    context = _tls_context()
    try:
        return httpx.AsyncClient(
            verify=context,
            transport=None if has_proxies() else _AiohttpTransport(context),
            timeout=None,  # noqa: S113 - callers bound the whole exchange, body included
            limits=httpx.Limits(max_connections=_CONNECTIONS),
            follow_redirects=False,
            # Cookies of one conversation are never sent in another.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )
    except (httpx.InvalidURL, ValueError, ImportError) as error:  # SOCKS needs a package
        return httpx.AsyncClient(transport=_NoTransport(str(error)), trust_env=False)


def open_transport() -> httpx.AsyncBaseTransport:
    """Return what sends requests as such a client does, each as it is.

    Credentials in a URL, cookies and redirects are left to the caller: a client would spend a third
    of the time of a request on them. Only proxies need one.
    """
    return _ByClient(open_client()) if has_proxies() else _AiohttpTransport(_tls_context())


def open_session(
    context: ssl.SSLContext | bool, cookies: AbstractCookieJar
) -> aiohttp.ClientSession:
    """Return a session of aiohttp that has no timeout of its own, and leaves bodies packed."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            ssl=context, limit=_CONNECTIONS, keepalive_timeout=_KEPT_ALIVE_S
        ),
        cookie_jar=cookies,
        timeout=aiohttp.ClientTimeout(),
        auto_decompress=False,
        max_line_size=_MOST_OF_A_HEADER_BYTES,
        max_field_size=_MOST_OF_A_HEADER_BYTES,
    )


def has_proxies() -> bool:
    """Tell whether requests may go through a proxy, as HTTP clients look it up."""
    return not getproxies().keys().isdisjoint({"http", "https", "all"})


@functools.cache
def _tls_context() -> ssl.SSLContext:
    """Load certificates once, which takes 25 ms: the system's own beside those of httpx."""
    context = httpx.create_ssl_context()
    context.load_default_certs()
    return context


class _AiohttpTransport(httpx.AsyncBaseTransport):
    """aiohttp below httpx: it takes half the time of httpx's own when many calls run at once.

    Requests, decoding, cookies and redirects stay httpx's. openai brings aiohttp along.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return its answer when its headers are there."""
        if self._session is None:
            self._session = open_session(self._context, aiohttp.DummyCookieJar())
        with _errors_of_httpx():
            answer = await self._session.request(
                request.method,
                # Its credentials are in a header already.
                yarl.URL(str(request.url), encoded=True).with_user(None),
                headers=request.headers.multi_items(),
                data=request.content,
                allow_redirects=False,
                skip_auto_headers=_ADDED_BY_AIOHTTP,
            )
        return httpx.Response(
            answer.status, headers=list(answer.raw_headers), stream=_AnswerBody(answer)
        )

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()


class _ByClient(httpx.AsyncBaseTransport):
    """Sends by a client, which finds the proxy for a URL."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return its answer when its headers are there."""
        return await self._client.send(request, stream=True)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()


class _NoTransport(httpx.AsyncBaseTransport):
    """Fails, as the proxy of the environment cannot be used."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:  # noqa: ARG002
        """Raise that there is no way."""
        raise httpx.ProxyError(f"the proxy of the environment cannot be used: {self._reason}")


class _AnswerBody(httpx.AsyncByteStream):
    """The body of an answer, as it comes."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _errors_of_httpx():
            async for piece in self._answer.content.iter_any():
                yield piece

    async def aclose(self) -> None:
        """Give the connection back; close it if its body was not read."""
        self._answer.close()


@contextmanager
def _errors_of_httpx() -> Iterator[None]:
    try:
        yield
    except aiohttp.ClientConnectorError as error:
        raise httpx.ConnectError(str(error)) from error
    except (aiohttp.ClientPayloadError, aiohttp.ClientResponseError) as error:
        raise httpx.RemoteProtocolError(str(error)) from error
    except (aiohttp.ClientError, OSError) as error:
        raise httpx.NetworkError(str(error)) from error
    except ValueError as error:  # a header that cannot be sent
        raise httpx.LocalProtocolError(str(error)) from error
