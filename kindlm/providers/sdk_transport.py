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
import inspect
import json
import logging
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import aiohttp
import httpx

from kindlm.http_client import has_proxies
from kindlm.providers.client import MAX_BODY_BYTES, AnswerTooLong, HttpAnswer, NoAnswer
from kindlm.providers.request_form import RequestForm, form_of
from kindlm.sdk_http import bounded_by, http_library, tls_context

if TYPE_CHECKING:
    import httpx2

__all__ = ["AsyncSdk", "SdkTransport", "silence_sdk_logs"]

_UNREACHABLE = (UnicodeError, aiohttp.ClientError, httpx.DecodingError, OSError)
"""What is raised when no answer comes, beside the errors of the SDKs and their HTTP libraries.

aiohttp's transport reports a refused or cut connection as a timeout. As the SDKs run without a
timeout of theirs, whatever they raise without a response is a matter of the network.
"""

# Both as the SDKs' own clients have it.
_CONNECTIONS = 1000
_KEPT_ALIVE_S = 5.0

_CHUNK_BYTES = 65_536


class AsyncSdk(Protocol):
    """What is used of an SDK's client."""

    @property
    def post(self) -> Callable[..., Awaitable[Any]]:
        """Post `content`, bytes, or `body`, JSON; return the answer, read to its end, or raise."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class SdkTransport:
    """Implements `client.Transport`.

    Args:
        module: the SDK. Its own client on aiohttp takes half the time of its usual one when many
            calls run at once; it is used without redirects.
        connect: makes the SDK's client on an HTTP client.
        headers: what each request says beside what the SDK says.
    """

    def __init__(
        self,
        module: ModuleType,
        connect: Callable[[Any], AsyncSdk],
        headers: Mapping[str, Any],
    ) -> None:
        self._http = http_library(module)
        self._connect = connect
        http_client = module.DefaultAioHttpClient(
            verify=tls_context(self._http), follow_redirects=False
        )
        bound = bounded_by(self._http, MAX_BODY_BYTES, AnswerTooLong)
        http_client.event_hooks = {"response": [bound]}
        self._sdk = connect(http_client)
        self._options = {"headers": headers}
        # openai before 2.17 and anthropic before 0.77 do not.
        self._takes_bytes = "content" in inspect.signature(module.AsyncClient.post).parameters
        self._failures = (
            *(module.APIError, self._http.HTTPError, self._http.InvalidURL),
            *_UNREACHABLE,
        )
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
        except self._failures as error:
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
        sent = {"content": body} if self._takes_bytes else {"body": json.loads(body)}
        response: httpx2.Response = await sdk.post(
            path, cast_to=self._http.Response, options=self._options, **sent
        )
        return response

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
            response: httpx2.Response = self._http.Response(200, json={})
            return response

        transport = self._http.MockTransport(answer)
        async with self._http.AsyncClient(transport=transport) as nowhere:
            sdk = self._connect(nowhere)
            for body in (b"{}", b'{"model":"m"}'):
                await self._post(sdk, path, body)
        return asked

    async def _send(self, form: RequestForm, body: bytes) -> HttpAnswer:
        """Send a request as the SDK would."""
        if self._session is None:
            self._session = _open_session(tls_context(self._http))
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


def _open_session(context: ssl.SSLContext) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            ssl=context, limit=_CONNECTIONS, keepalive_timeout=_KEPT_ALIVE_S
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
    whole = httpx.Response(response.status, headers=list(response.raw_headers), content=packed)
    unpacked = bytearray()
    for piece in whole.iter_bytes():
        unpacked += piece
        if len(unpacked) > MAX_BODY_BYTES:
            raise AnswerTooLong
    return unpacked.decode(whole.encoding or "utf-8", "replace")


async def _within_bounds(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise AnswerTooLong
        yield piece


def _http_answer(response: httpx2.Response) -> HttpAnswer:
    return HttpAnswer(response.status_code, response.headers, response.text)
