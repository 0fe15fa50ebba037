"""The transport that is the OpenAI or the Anthropic SDK; both are built alike.

They give what their users rely on: credentials, base URLs, proxies, TLS, headers, error classes.
Requests go as ready JSON and come back as HTTP answers: building and parsing typed models for
each call costs more than the call, and the body is wanted as it was received.

Even so an SDK spends five times as long on a call as the HTTP client below it, for it builds each
request anew. So it is asked once for each path what it would send. Where that is the same every
time, `SdkTransport` sends it itself, with each call's body. Requests that may go through a proxy,
or differ from one another, stay with the SDK.

Redirects are not followed: they would take keys and conversations to where nobody sent them.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from typing import Any, Protocol

import aiohttp
import httpx2

from kindlm.http_client import has_proxies
from kindlm.providers.client import MAX_BODY_BYTES, AnswerTooLong, HttpAnswer, NoAnswer
from kindlm.providers.request_form import RequestForm, form_of

__all__ = ["AsyncSdk", "SdkTransport", "silence_sdk_logs", "tls_context"]

_UNREACHABLE = (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError, aiohttp.ClientError, OSError)
"""What the HTTP stack raises when no answer comes, beside the SDKs' own errors.

aiohttp's transport reports a refused or cut connection as a timeout. As the SDKs run without a
timeout of theirs, whatever they raise without a response is a matter of the network.
"""

# Both as the SDKs' own clients have it.
_CONNECTIONS = 1000
_KEPT_ALIVE_S = 5.0

_CHUNK_BYTES = 65_536


class AsyncSdk(Protocol):
    """What is used of an SDK's client."""

    async def post(
        self, path: str, *, cast_to: type[httpx2.Response], content: bytes, options: Any
    ) -> httpx2.Response:
        """Post a body; return the answer, read to its end, or raise."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class SdkTransport:
    """Implements `client.Transport`.

    Args:
        connect: makes the SDK's client on an HTTP client.
        http_client: the SDK's own on aiohttp, which takes half the time of its usual one when many
            calls run at once; it follows no redirects.
        headers: what each request says beside what the SDK says.
        failure: the base of the SDK's errors of requests.
    """

    def __init__(
        self,
        connect: Callable[[httpx2.AsyncClient], AsyncSdk],
        http_client: httpx2.AsyncClient,
        headers: Mapping[str, Any],
        failure: type[Exception],
    ) -> None:
        self._connect = connect
        http_client.event_hooks = {"response": [_bound]}
        self._sdk = connect(http_client)
        self._options = {"headers": headers}
        self._failure = failure
        self._direct = not has_proxies()
        self._forms: dict[str, RequestForm | None] = {}
        self._asking = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None

    async def send(self, path: str, body: bytes) -> HttpAnswer:
        """Post a body and return the answer whatever its status; see `client.Transport`."""
        try:
            form = await self._form(path) if self._direct else None
            if form is not None:
                return await self._send(form, body)
            return _http_answer(await self._post(self._sdk, path, body))
        except (self._failure, *_UNREACHABLE) as error:
            response = getattr(error, "response", None)
            if response is None and isinstance(error.__cause__, AnswerTooLong):
                raise AnswerTooLong from error
            if response is None:
                raise NoAnswer from error
            return _http_answer(response)

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
        await self._sdk.close()

    async def _post(self, sdk: AsyncSdk, path: str, body: bytes) -> httpx2.Response:
        return await sdk.post(path, cast_to=httpx2.Response, content=body, options=self._options)

    async def _form(self, path: str) -> RequestForm | None:
        """Return the form of what the SDK sends to a path, None if it has none."""
        if path not in self._forms:
            async with self._asking:
                if path not in self._forms:
                    self._forms[path] = form_of(await self._ask(path))
        return self._forms[path]

    async def _ask(self, path: str) -> list[httpx2.Request]:
        """Return requests that the SDK would send to a path, which go nowhere."""
        asked: list[httpx2.Request] = []

        def answer(request: httpx2.Request) -> httpx2.Response:
            asked.append(request)
            return httpx2.Response(200, json={})

        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as nowhere:
            sdk = self._connect(nowhere)
            for body in (b"{}", b'{"model":"m"}'):
                await self._post(sdk, path, body)
        return asked

    async def _send(self, form: RequestForm, body: bytes) -> HttpAnswer:
        """Send a request as the SDK would."""
        if self._session is None:
            self._session = _open_session()
        async with self._session.post(
            form.url, headers=form.headers_for(body), data=body, allow_redirects=False
        ) as response:
            pieces = response.content.iter_chunked(_CHUNK_BYTES)
            content = b"".join([piece async for piece in _within_bounds(pieces)])
        return HttpAnswer(response.status, response.headers, _text(response, content))


def silence_sdk_logs() -> None:
    """Keep the SDKs from logging requests: with ANTHROPIC_LOG=debug they print keys in clear.

    To be called once an SDK is loaded; what happens is in kindlm's own log, without keys.
    """
    for name in ("anthropic", "openai", "httpx2", "httpx"):
        logging.getLogger(name).setLevel(logging.ERROR)


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Load certificates once, as the SDKs would for each of their clients; that takes 25 ms."""
    return httpx2.create_ssl_context()


def _open_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            ssl=tls_context(), limit=_CONNECTIONS, keepalive_timeout=_KEPT_ALIVE_S
        ),
        # The SDKs send cookies back, too, also to hosts that have no name; gateways count on it.
        cookie_jar=aiohttp.CookieJar(unsafe=True, quote_cookie=False),
        timeout=aiohttp.ClientTimeout(),
        auto_decompress=False,
    )


def _text(response: aiohttp.ClientResponse, content: bytes) -> str:
    """Return a body as text, decoded as the SDKs do."""
    headers = response.headers
    if "Content-Encoding" not in headers and "charset" not in headers.get("Content-Type", ""):
        return content.decode("utf-8", "replace")
    # Unpacked piece by piece: a few bytes may stand for a thousand times as many.
    packed = (content[at : at + _CHUNK_BYTES] for at in range(0, len(content), _CHUNK_BYTES))
    whole = httpx2.Response(response.status, headers=list(response.raw_headers), content=packed)
    unpacked = bytearray()
    for piece in whole.iter_bytes():
        unpacked += piece
        if len(unpacked) > MAX_BODY_BYTES:
            raise AnswerTooLong
    return unpacked.decode(whole.encoding or "utf-8", "replace")


async def _bound(response: httpx2.Response) -> None:
    """Let what the SDK reads of an answer have an end."""
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _BoundedStream(response.stream)


class _BoundedStream(httpx2.AsyncByteStream):
    """The body of an answer, as it is read by the SDK."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _within_bounds(self._stream)

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _within_bounds(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise AnswerTooLong
        yield piece


def _http_answer(response: httpx2.Response) -> HttpAnswer:
    return HttpAnswer(response.status_code, response.headers, response.text)
