"""Sends requests with the OpenAI or the Anthropic SDK, or as the SDK would.

The SDKs provide what their users rely on: credentials, base URLs, proxies, TLS, headers. They take
JSON and return HTTP answers, since kindlm needs the body as received, and typed models cost more
time than the call.

An SDK takes five times as long for a call as the HTTP client below it. So kindlm asks it once for
each path what it would send. If that is always the same, `SdkTransport` sends it itself, and later
runs need not load the SDK (`request_form.py`). The SDK sends requests that may go through a proxy,
and requests whose headers differ.

Redirects are not followed: they would take keys and conversations to another server.

The SDKs also read a base URL, an organization and headers from the environment. These apply only
without a configured `baseUrl`, which gets nothing from the environment.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import json
import logging
import os
import ssl
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import aiohttp
import httpx

from kindlm.dataclass import dataclass
from kindlm.garbage import put_off
from kindlm.http_client import THIS_MACHINE, has_proxies, open_session
from kindlm.providers.client import (
    MAX_BODY_BYTES,
    AnswerTooLong,
    NoAnswer,
    NoCredentials,
    decoded,
    within_bounds,
)
from kindlm.providers.provider_failures import HttpAnswer
from kindlm.providers.request_form import LENGTH, FormCache, RequestForm, form_of
from kindlm_store import Redactor

if TYPE_CHECKING:
    import httpx2

_UNREACHABLE = (UnicodeError, aiohttp.ClientError, httpx.DecodingError, OSError)
"""Exceptions without an answer, beside the errors of the SDKs and their HTTP libraries.

An SDK's error without a response is a network error: aiohttp's transport reports a refused or cut
connection as a timeout, and the SDKs have no timeout of their own.
"""

_CHUNK_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Signing:
    """Authorization of each request by an SDK: its errors without credentials, and the remedy."""

    errors: tuple[type[Exception], ...]
    hint: str


class SdkTransport:
    """Implements `client.Transport`.

    If the form of its requests is not in the `cache`, the SDK is loaded immediately, not during the
    first call.
    """

    def __init__(self, path: str, load: Callable[[], Sdk], cache: FormCache | None = None) -> None:
        self._path = path
        self._load = load
        self._cache = cache
        self._connected: Sdk | None = None
        self._direct = not has_proxies()
        self._form = cache.read() if cache is not None and self._direct else None
        if self._form is None:
            self._direct = self._sdk().signing is None and self._direct
        self._asking = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None

    async def send(self, body: bytes) -> HttpAnswer:
        if self._form is None and self._direct:
            await self._ask()
        if self._form is None:
            return await self._sdk().send(self._path, body)
        try:
            return await self._send(self._form, body)
        except _UNREACHABLE as error:
            raise NoAnswer from error

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
        if self._connected is not None:
            await self._connected.client.close()

    def _sdk(self) -> Sdk:
        if self._connected is None:
            with put_off():
                self._connected = self._load()
            # With ANTHROPIC_LOG=debug, the SDKs set up logging that prints keys.
            for name in ("anthropic", "openai", "httpx2", "httpx"):
                logging.getLogger(name).setLevel(logging.ERROR)
        return self._connected

    async def _ask(self) -> None:
        """Ask the SDK for the form of its requests; without a common form, the SDK sends them."""
        async with self._asking:
            if self._form is None and self._direct:
                self._form = form_of(await self._sdk().ask(self._path))
                self._direct = self._form is not None
                if self._form is not None and self._cache is not None:
                    self._cache.write(self._form)

    async def _send(self, form: RequestForm, body: bytes) -> HttpAnswer:
        """Send a request as the SDK would."""
        if self._session is None:
            secure = form.url.scheme == "https"
            context = _tls_context(importlib.import_module(form.library)) if secure else True
            # The SDKs send cookies back, also to hosts without a name; gateways rely on it.
            cookies = aiohttp.CookieJar(unsafe=True, quote_cookie=False)
            self._session = open_session(context, cookies)
        headers = form.headers.copy()
        headers[LENGTH] = str(len(body))
        async with self._session.post(
            form.url, headers=headers, data=body, allow_redirects=False
        ) as response:
            pieces = within_bounds(response.content.iter_chunked(_CHUNK_BYTES))
            content = b"".join([piece async for piece in pieces])
        return HttpAnswer(response.status, response.headers, _text(response, content))


class Sdk:
    """An SDK with its client.

    `make` makes clients from settings that all of them share. `headers` are sent in addition to the
    SDK's. With `signing`, the SDK sends all requests itself.
    """

    def __init__(
        self,
        module: ModuleType,
        make: Callable[..., Any],
        headers: Mapping[str, Any],
        signing: Signing | None = None,
    ) -> None:
        self._make = make
        self._headers = headers
        self.signing = signing
        self._http = _http_library(module)
        # With many calls at once, the client on aiohttp takes half the time of the usual one.
        verify = _tls_context(self._http)
        self.client = self._connect(
            module.DefaultAioHttpClient(
                verify=verify, follow_redirects=False, mounts=dict(THIS_MACHINE)
            )
        )
        # openai before 2.17 and anthropic before 0.77 take no bytes. A client that signs puts a
        # part of the body into the path.
        takes_bytes = "content" in inspect.signature(module.AsyncClient.post).parameters
        self._takes_bytes = takes_bytes and signing is None
        self._failures = (
            *(module.APIError, self._http.HTTPError, self._http.InvalidURL),
            *_UNREACHABLE,
        )

    def _connect(self, http_client: Any) -> Any:
        """Return the SDK's client on an HTTP client; retries and timeouts are kindlm's own."""
        return self._make(max_retries=0, timeout=None, http_client=http_client)

    async def send(self, path: str, body: bytes) -> HttpAnswer:
        signing = self.signing or Signing((), "")
        try:
            response = await self._post(self.client, path, body)
        except signing.errors as error:
            raise NoCredentials(str(error), signing.hint) from error
        except self._failures as error:
            response = getattr(error, "response", None)
            if response is None:
                raise NoAnswer from error
        if len(response.content) > MAX_BODY_BYTES:
            raise AnswerTooLong
        text = decoded(response.content, response.encoding)
        if self.signing is not None:
            # A signature gives no access, so it stays.
            sent = response.request.headers
            scheme, _, token = sent.get("authorization", "").partition(" ")
            tokens = (token if scheme == "Bearer" else "", sent.get("x-amz-security-token", ""))
            text = _redactor(tokens)(text)
        return HttpAnswer(response.status_code, response.headers, text)

    async def ask(self, path: str) -> list[httpx2.Request]:
        """Return two requests that the SDK would send to a path; none on failure."""
        asked: list[httpx2.Request] = []

        def answer(request: httpx2.Request) -> httpx2.Response:
            asked.append(request)
            response: httpx2.Response = self._http.Response(200, json={})
            return response

        transport = self._http.MockTransport(answer)
        async with self._http.AsyncClient(transport=transport) as nowhere:
            client = self._connect(nowhere)
            try:
                for body in (b"{}", b'{"model":"m"}'):
                    await self._post(client, path, body)
            except self._failures:
                return []
        return asked

    async def _post(self, client: Any, path: str, body: bytes) -> Any:
        sent = {"content": body} if self._takes_bytes else {"body": json.loads(body)}
        return await client.post(
            path, cast_to=self._http.Response, options={"headers": self._headers}, **sent
        )


_redactor = functools.lru_cache(maxsize=4)(Redactor)


def _http_library(sdk: ModuleType) -> Any:
    """Return the module of an SDK's HTTP clients: httpx2 or httpx."""
    client = sdk.DefaultAsyncHttpxClient.__base__
    return importlib.import_module(client.__module__.partition(".")[0])


@functools.cache
def _tls_context(http: Any) -> ssl.SSLContext:
    """Return the trusted certificates as the SDKs load them, which takes 25 ms."""
    context: ssl.SSLContext = http.create_ssl_context()
    return context


def _text(response: aiohttp.ClientResponse, content: bytes) -> str:
    """Return a body as text, decoded as the SDKs do."""
    headers = response.headers
    if "Content-Encoding" not in headers and "charset" not in headers.get("Content-Type", ""):
        return decoded(content, None)
    whole = httpx.Response(response.status, headers=list(response.raw_headers), content=content)
    if len(whole.content) > MAX_BODY_BYTES:
        raise AnswerTooLong
    return decoded(whole.content, whole.encoding)


def ambient_headers(sdk: ModuleType, variable: str) -> dict[str, Any]:
    """Return settings that remove the headers of a variable with `name: value` lines.

    The SDK reads the variable itself, from the process environment.
    """
    lines = (line.partition(":") for line in os.environ.get(variable, "").split("\n"))
    return {name.strip(): sdk.Omit() for name, colon, _ in lines if colon}
