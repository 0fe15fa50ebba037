"""Agents behind a URL: the HTTP exchange, and the base class of their adapters.

kindlm sends JSON and reads the answer to its end. The conversations of a run share connections and
nothing else: a new connection for each would double the cost of an exchange.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

from pydantic import Field

from kindlm.agents.agent_failures import SHORTEST_HIDDEN, AgentFailure, Who
from kindlm.agents.drafts import Heard
from kindlm.agents.http_request import request_warnings
from kindlm.agents.reply_parts import WHERE_THE_TEXT_IS, UnreadableReply
from kindlm.agents.reply_reading import FailedReply
from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, Ok, Result
from kindlm.plugins import Adapter
from kindlm.ports import Agent, AgentReply, AgentRequest
from kindlm.section import Maybe, Text
from kindlm.suite import AgentTarget
from kindlm.values import check_url, is_url
from kindlm.wires import is_sse

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """An agent's server: its URL, and the headers that it is sent with each request."""

    who: Who
    endpoint: str
    headers: Mapping[str, str]


_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# A value of these is not a secret, however long it is.
_HARMLESS_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})


def http_target(target: AgentTarget) -> HttpTarget:
    """Return the server of an agent; no error holds a header's value.

    Raises:
        AgentFailure: its URL or one of its headers is invalid.
    """
    who = Who(target.id, _secrets(target))
    if not (is_url(target.endpoint) and target.endpoint.isprintable()):
        hint = "Write it like http://127.0.0.1:8000/chat"
        raise AgentFailure(who.misconfigured("its `endpoint` is not an http or https URL", hint))
    for name, value in target.headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise AgentFailure(who.misconfigured(f"{name!r} is not a valid header name"))
        if not (value.isascii() and value.isprintable() and value == value.strip()):
            message = f"its header {name!r} contains characters that are not allowed in headers"
            hint = "It may contain stray spaces, quotes or line ends"
            raise AgentFailure(who.misconfigured(message, hint))
    return HttpTarget(who, target.endpoint, target.headers)


def _secrets(target: AgentTarget) -> frozenset[str]:
    """Return possible credentials: values of headers, with and without their scheme."""
    found = set()
    for name, value in target.headers.items():
        if name.lower() not in _HARMLESS_HEADERS:
            found |= {value, value.rpartition(" ")[2]}
    try:
        password = urlsplit(target.endpoint).password
    except ValueError:
        password = None
    if password:
        found |= {password, unquote(password)}
    return frozenset(secret for secret in found if len(secret) >= SHORTEST_HIDDEN)


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
            # Removed before it is closed: a conversation that starts meanwhile gets new
            # connections.
            del _shared[loop]
            if shared.transport is not None:
                await shared.transport.aclose()


_BEGINNING = re.compile(r"[\ufeff\s]*<(?:!doctype\s+html|html)\b", re.IGNORECASE)


def is_page(text: str) -> bool:
    """Return whether a text begins like an HTML document, whatever its media type."""
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
    # HTTP clients accept a truncated compressed body as complete.
    "accept-encoding": "identity",
    "connection": "keep-alive",
    "content-type": "application/json",
}


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An answer, read to its end; `kind` is its media type, without parameters.

    `has_end` means that HTTP itself marked the end of the body, by its last chunk or by its length.
    Otherwise the body ends when the connection is closed, which a failing server does, too.
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

    `accept` is the `Accept` header unless the user's headers have one.
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
        """Join the shared connections; they are made with the first message."""
        from kindlm.http_client import open_transport  # runs without agents do not need it

        shared = await self._stack.enter_async_context(kept_connections())
        self._transport = shared.transport = shared.transport or open_transport()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Leave the shared connections; the last user closes them."""
        await self._stack.aclose()

    async def post(self, body: Any, request: AgentRequest, url: str | None = None) -> HttpReply:
        """Post a JSON value for a message to the endpoint, or to a `url` of its server; see `ask`.

        The headers of the message are sent with it.
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
            AgentFailure: its status reports a failure, it is an HTML page, it has more than
                `MAX_BODY_BYTES`, or it did not arrive within `timeout_s`, which covers the whole
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
            raise AgentFailure(who.timed_out(timeout_s, retryable=not has_begun)) from error
        except UNREACHABLE as error:
            failure = who.unreachable(self._target.endpoint, error, has_begun=has_begun)
            raise AgentFailure(failure) from error
        latency_ms = (time.perf_counter() - started) * 1000
        if not 200 <= answer.status < 300:
            raise AgentFailure(who.refused(answer.status, answer.headers, answer.text))
        is_markup = answer.kind in _PAGES and answer.text.lstrip("\ufeff \t\r\n").startswith("<")
        if is_markup or is_page(answer.text):
            raise AgentFailure(who.sent_page(answer.text, answer.status))
        return replace(answer, latency_ms=latency_ms)

    @asynccontextmanager
    async def _response(
        self, method: str, to: str, content: bytes | None, headers: dict[str, str]
    ) -> AsyncIterator[httpx.Response]:
        """Send a request, following redirects; yield the answer, with its body unread.

        After too many redirects, the last one is the answer.
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
            raise AgentFailure(who.failed(message))
        pieces.append(piece)
        tail = tail[-len("\ndata: [DONE]\n") :] + piece
        if kind == EVENT_STREAM and _STREAM_END.search(tail):
            break  # servers may leave the connection open
    # A body that ends before its declared end is an error in itself.
    has_end = not {"content-length", "transfer-encoding"}.isdisjoint(response.headers)
    return HttpReply(response.status_code, response.headers, kind, "".join(pieces), has_end)


def _same_place(response: httpx.Response) -> httpx.URL | None:
    """Return where to repeat a redirected request unchanged: at the same server, else nowhere.

    The request is meant for one server alone: it holds the user's message and credentials.
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


Streams = Annotated[
    Maybe[bool],
    Field(
        examples=[True],
        description="The agent answers with a stream. By default false for `langgraph`, true for "
        "`tapescope` and `streaming`.",
    ),
]
AssistantId = Annotated[
    Maybe[Text],
    Field(
        examples=["agent"],
        description="Id of the assistant. By default `agent` for `langgraph` in the mode `cloud`, "
        "and OPENAI_ASSISTANT_ID for `openai-assistants`.",
    ),
]


_LONG = 50_000
_NOT_UNDERSTOOD = frozenset({400, 415, 422})


class Served(Adapter):
    """Agents behind a URL: a subclass makes the bodies of requests and reads the answers."""

    needs_endpoint: ClassVar[bool] = True
    hint: ClassVar[str] = WHERE_THE_TEXT_IS
    """The hint for an answer that cannot be read."""
    refused_hint: ClassVar[str | None] = None
    """The hint for a request that the agent did not understand."""

    def open(self, target: AgentTarget, environ: Mapping[str, str]) -> Agent:
        """Return the agent for one conversation; raise as `http_target`."""
        del environ  # the target holds all it needs
        return self.agent(http_target(target))

    def agent(self, server: HttpTarget) -> Agent:
        """Return the agent behind a server."""
        return ServedAgent(server, self)

    def body_for(self, request: AgentRequest, carried: Any) -> Any:
        """Return the body of a request; `carried` is that of the last answer (`Heard`)."""
        raise NotImplementedError

    def heard(self, answer: HttpReply, request: AgentRequest) -> Heard:
        """Return the content of an answer; raise `FailedReply` or `UnreadableReply` for none."""
        raise NotImplementedError

    def accepts(self) -> str | None:
        """Return the `Accept` header, None for the default."""
        return None

    def not_sent(self, request: AgentRequest) -> tuple[str, ...]:
        """Return warnings about what the body of a request leaves out."""
        return request_warnings(request, says_system=self.sends_system_text())

    @classmethod
    def check_endpoint(cls, endpoint: str) -> None:
        """Refuse anything but a URL."""
        check_url(endpoint)

    def sends_system_text(self) -> bool:
        """Return False: such a server gets only the user's messages."""
        return False


class ServedAgent(HttpConversation):
    """Implements `ports.Agent` for agents behind a URL."""

    def __init__(self, server: HttpTarget, options: Served) -> None:
        super().__init__(server, options.accepts())
        self._who = server.who
        self._options = options
        self._carried: Any = None

    async def answer_to(self, request: AgentRequest) -> HttpReply:
        """Send the message, and return the response; raise `AgentFailure` if there is none."""
        return await self.post(self._options.body_for(request, self._carried), request)

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send one message, and read the answer; see `ports.Agent`."""
        options = self._options
        try:
            got = await self.answer_to(request)
        except AgentFailure as failed:
            is_refused = failed.error.details.get("status") in _NOT_UNDERSTOOD
            hint = options.refused_hint if is_refused else None
            return Err(replace(failed.error, hint=hint or failed.error.hint))
        try:
            # Reading a short answer takes less time than starting a thread.
            is_long = len(got.text) > _LONG
            reading = asyncio.to_thread(options.heard, got, request) if is_long else None
            heard = options.heard(got, request) if reading is None else await reading
        except (FailedReply, UnreadableReply) as error:
            hint = options.hint
            return Err(self._who.unreadable(error, got.text, got.status, hint))
        self._carried = self._carried if heard.carried is None else heard.carried
        reply = heard.reply
        warnings = (*options.not_sent(request), *reply.warnings)
        return Ok(replace(reply, raw=got.text, latency_ms=got.latency_ms, warnings=warnings))
