"""kindlm's own HTTP client, for agents under test and Ollama.

httpx is only used here and by the users of these clients, so that a successor can replace it.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.request import getproxies

import aiohttp
import httpx
import yarl
from aiohttp.abc import AbstractCookieJar

UNREACHABLE = (
    httpx.HTTPError,
    httpx.InvalidURL,
    httpx.StreamError,
    aiohttp.ClientError,
    OSError,
)
"""The exceptions of a client or transport without a complete response."""

_CONNECTIONS = 1000  # as in the clients of SDKs
# Many servers close an idle connection after 5 s. A request sent at that moment would be lost.
_KEPT_ALIVE_S = 4.0
_MOST_OF_A_HEADER_BYTES = 65_536

THIS_MACHINE = dict.fromkeys(("all://127.0.0.1", "all://localhost", "all://[::1]"))
"""Hosts that no proxy is asked for: it would get the messages and credentials for them."""

_ADDED_BY_AIOHTTP = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


def open_client() -> httpx.AsyncClient:
    """Return a client without a timeout, redirects and cookies.

    It uses proxies and certificates of the environment, for this machine no proxy. If they cannot
    be used, every request fails.
    """
    try:
        context = _tls_context()
        return httpx.AsyncClient(
            verify=context,
            transport=None if has_proxies() else _AiohttpTransport(context),
            mounts=THIS_MACHINE,
            timeout=None,  # noqa: S113 - callers limit the whole exchange, including the body
            limits=httpx.Limits(max_connections=_CONNECTIONS, keepalive_expiry=_KEPT_ALIVE_S),
            follow_redirects=False,
            # Conversations must not share cookies.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )
    except OSError as error:
        files = "the certificates that SSL_CERT_FILE or SSL_CERT_DIR names"
        message = f"{files} cannot be loaded: {error}"
    except (httpx.InvalidURL, ValueError, ImportError) as error:  # SOCKS needs a package
        message = f"the proxy of the environment cannot be used: {error}"

    def fail(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(message)

    return httpx.AsyncClient(transport=httpx.MockTransport(fail), trust_env=False)


def open_transport() -> httpx.AsyncBaseTransport:
    """Return a transport that sends requests unchanged, with proxies and certificates as above.

    A client would spend a third of a request's time on credentials in URLs, cookies and redirects.
    """
    if not has_proxies():
        with suppress(OSError):  # the requests of the client below fail with the reason
            return _AiohttpTransport(_tls_context())
    return _ByClient(open_client())


def open_session(
    context: ssl.SSLContext | bool, cookies: AbstractCookieJar
) -> aiohttp.ClientSession:
    """Return a session of aiohttp without a timeout, which does not decompress bodies."""
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
    """Return whether requests may go through a proxy of the environment."""
    return not getproxies().keys().isdisjoint({"http", "https", "all"})


@functools.cache
def _tls_context() -> ssl.SSLContext:
    """Load the certificates of the system and of httpx once, which takes 25 ms."""
    context = httpx.create_ssl_context()
    context.load_default_certs()
    return context


class _AiohttpTransport(httpx.AsyncBaseTransport):
    """Sends requests of httpx with aiohttp, which takes half the time for many calls at once."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its response when the headers have arrived."""
        if self._session is None:
            self._session = open_session(self._context, aiohttp.DummyCookieJar())
        try:
            answer = await self._session.request(
                request.method,
                # Credentials are already in a header.
                yarl.URL(str(request.url), encoded=True).with_user(None),
                headers=request.headers.multi_items(),
                data=request.content,
                allow_redirects=False,
                skip_auto_headers=_ADDED_BY_AIOHTTP,
            )
        except ValueError as error:  # a header that cannot be sent
            raise httpx.LocalProtocolError(str(error)) from error
        return httpx.Response(
            answer.status, headers=list(answer.raw_headers), stream=_AnswerBody(answer)
        )

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()


class _ByClient(httpx.AsyncBaseTransport):
    """Sends requests with a client, which finds the proxy for a URL."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its response when the headers have arrived."""
        return await self._client.send(request, stream=True)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()


class _AnswerBody(httpx.AsyncByteStream):
    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._answer.content.iter_any():
            yield piece

    async def aclose(self) -> None:
        """Release the connection; close it if the body was not read."""
        self._answer.close()
