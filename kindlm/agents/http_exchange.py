"""One agent's HTTP conversation: JSON is sent, and what comes back is read to its end.

The conversations of a run share connections and nothing else: opening one for each would double
the cost of an exchange.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

from kindlm.agents.agent_failures import AgentFailed, Who
from kindlm.dataclass import dataclass, replace
from kindlm.ports import AgentRequest
from kindlm.wires.sse import is_sse

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """An agent's server: its URL, and the headers that it is sent with each request."""

    who: Who
    endpoint: str
    headers: Mapping[str, str]


@dataclass(slots=True)
class _Shared:
    transport: httpx.AsyncBaseTransport | None = None
    users: int = 0


# Connections belong to the event loop that opened them.
_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


@asynccontextmanager
async def kept_connections() -> AsyncIterator[_Shared]:
    """Share the connections of this event loop; its last user closes them."""
    loop = asyncio.get_running_loop()
    shared = _shared.setdefault(loop, _Shared())
    shared.users += 1
    try:
        yield shared
    finally:
        shared.users -= 1
        if not shared.users:
            # Gone before it is closed: whoever comes meanwhile gets a new one.
            del _shared[loop]
            if shared.transport is not None:
                await shared.transport.aclose()


_BEGINNING = re.compile(r"[\ufeff\s]*<(?:!doctype\s+html|html)\b", re.IGNORECASE)


def is_page(text: str) -> bool:
    """Tell whether a text begins as an HTML document does, whatever it was sent as."""
    return _BEGINNING.match(text) is not None


MAX_BODY_BYTES = 10_000_000
EVENT_STREAM = "text/event-stream"

_STREAM_END = re.compile(r"(?:^|[\r\n])data: ?\[DONE\][\r\n]")
_MAX_REDIRECTS = 5
_KEEPS_METHOD = frozenset({307, 308})
_PAGES = frozenset({"text/html", "application/xhtml+xml"})
"""What is sent for people: a login, an error of a server or proxy, never an answer of an agent.

Some frameworks send any text under the first name: it is a page only if it begins like one.
"""
_DEFAULT_HEADERS = {
    "accept": "application/json, text/event-stream;q=0.9, */*;q=0.8",
    # HTTP clients take a compressed body that breaks off for a whole one.
    "accept-encoding": "identity",
    "connection": "keep-alive",
    "content-type": "application/json",
}


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An answer, read to its end; `kind` is its media type, without parameters.

    `has_end` tells that HTTP itself said where the body ends, by its last chunk or by its length.
    Else it ends where the connection was closed, which a server that fails does, too.
    """

    status: int
    headers: Mapping[str, str]
    kind: str
    text: str
    has_end: bool = True
    latency_ms: float = 0.0

    @property
    def is_stream(self) -> bool:
        """Whether it is server-sent events, or looks like them."""
        return self.kind == EVENT_STREAM or is_sse(self.text)


class HttpConversation:
    """Posts to one agent, as `async with`. Each conversation has cookies of its own.

    `accept` is said where the user's headers do not say what is accepted.
    """

    def __init__(self, target: HttpTarget, accept: str | None = None) -> None:
        self._target = target
        import httpx

        self._cookies = httpx.Cookies()
        self._stack = AsyncExitStack()
        self._transport: httpx.AsyncBaseTransport | None = None
        written = {name.lower(): value for name, value in target.headers.items()}
        ours = {"user-agent": f"python-httpx/{httpx.__version__}"}
        if accept is not None:
            ours["accept"] = accept
        self._headers = _DEFAULT_HEADERS | ours | written

    async def __aenter__(self) -> Self:
        """Take a share in the connections; they are made with the first message."""
        from kindlm.http_client import open_transport  # runs without agents do not need it

        shared = await self._stack.enter_async_context(kept_connections())
        self._transport = shared.transport = shared.transport or open_transport()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Give the share back; the last one closes the connections."""
        await self._stack.aclose()

    async def post(self, body: Any, request: AgentRequest, url: str | None = None) -> HttpReply:
        """Post a JSON value for a message to the endpoint, or to a `url` of its server; see `ask`.

        What goes along with the message goes as headers.
        """
        # Plain ASCII, so that lone surrogates, which models do write, survive the way.
        content = json.dumps(body, separators=(",", ":")).encode("ascii")
        url = url or self._target.endpoint
        return await self.ask("POST", url, content, request.timeout_s, request.headers)

    async def ask(
        self,
        method: str,
        url: str,
        content: bytes | None,
        timeout_s: float,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> HttpReply:
        """Send a request, and return the answer.

        Raises:
            AgentFailed: its status is no success, it is an HTML page, it has more than
                `MAX_BODY_BYTES`, or did not come within `timeout_s`, which covers the whole
                exchange.
        """
        from kindlm.http_client import UNREACHABLE

        who = self._target.who
        has_begun = False
        asking = self._response(method, url, content, {**self._headers, **headers})
        started = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s), asking as got:
                # An agent that has begun to answer may have called tools: it is not asked again.
                has_begun = 200 <= got.status_code < 300
                answer = await _read(got, who)
        except TimeoutError as error:
            raise AgentFailed(who.timed_out(timeout_s, retryable=not has_begun)) from error
        except UNREACHABLE as error:
            failure = who.unreachable(self._target.endpoint, error, has_begun=has_begun)
            raise AgentFailed(failure) from error
        latency_ms = (time.perf_counter() - started) * 1000
        if not 200 <= answer.status < 300:
            raise AgentFailed(who.refused(answer.status, answer.headers, answer.text))
        is_markup = answer.kind in _PAGES and answer.text.lstrip("\ufeff \t\r\n").startswith("<")
        if is_markup or is_page(answer.text):
            raise AgentFailed(who.sent_page(answer.text, answer.status))
        return replace(answer, latency_ms=latency_ms)

    @asynccontextmanager
    async def _response(
        self, method: str, to: str, content: bytes | None, headers: dict[str, str]
    ) -> AsyncIterator[httpx.Response]:
        """Send a request, again where the server moves it; yield the answer, with its body unread.

        What is moved too often is answered as the last time.
        """
        import httpx

        transport, url = self._transport, httpx.URL(to)
        assert transport is not None, "use it as `async with`"
        for left in reversed(range(_MAX_REDIRECTS)):
            sent = httpx.Request(
                method, url, content=content, headers=headers, cookies=self._cookies
            )
            if url.username or url.password:
                next(httpx.BasicAuth(url.username, url.password).auth_flow(sent))
            got = await transport.handle_async_request(sent)
            got.request = sent
            try:
                if "set-cookie" in got.headers:
                    self._cookies.extract_cookies(got)
                moved = _same_place(got)
                if moved is None or not left:
                    encoding = got.headers.get("content-encoding", "").strip().lower()
                    if encoding not in ("", "identity"):
                        told = f"its body is compressed ({encoding}), which is not supported"
                        raise httpx.DecodingError(told)
                    yield got
                    return
                await got.aread()  # so that the connection can be used again
                url = moved
            finally:
                await got.aclose()


async def _read(response: httpx.Response, who: Who) -> HttpReply:
    """Read an answer to its end."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    size, pieces, tail = 0, list[str](), "\n"
    async for piece in response.aiter_text():
        size += len(piece)
        if size > MAX_BODY_BYTES:
            message = f"{who.title} sent more than {MAX_BODY_BYTES // 1_000_000} MB"
            raise AgentFailed(who.failed(message))
        pieces.append(piece)
        tail = tail[-len("\ndata: [DONE]\n") :] + piece
        if kind == EVENT_STREAM and _STREAM_END.search(tail):
            break  # servers may leave the connection open
    # A body that ends earlier than HTTP says is an error by itself.
    has_end = not {"content-length", "transfer-encoding"}.isdisjoint(response.headers)
    return HttpReply(response.status_code, response.headers, kind, "".join(pieces), has_end)


def _same_place(response: httpx.Response) -> httpx.URL | None:
    """Return where a request is to be repeated as it is: at the same server, else nowhere.

    The request holds what is meant for one server alone: the user's message and credentials.
    """
    if response.status_code not in _KEEPS_METHOD or not response.has_redirect_location:
        return None
    import httpx

    here = response.request.url
    try:
        there = here.join(response.headers["location"])
    except httpx.InvalidURL:
        return None
    if (here.scheme, here.host, here.port) != (there.scheme, there.host, there.port):
        return None
    return there
