"""Agents behind a URL: the HTTP exchange, and the base class of their adapters.

kindlm sends JSON and reads the answer to its end. The conversations of a run share connections, but
not cookies: a new connection for each exchange would double its cost.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

from pydantic import Field

from kindlm.agents.agent_failures import SHORTEST_HIDDEN, AgentFailure, Who, is_retryable
from kindlm.agents.drafts import ParsedAnswer
from kindlm.agents.http_request import request_warnings
from kindlm.agents.reply_parts import WHERE_THE_TEXT_IS, UnreadableReply, not_decoded
from kindlm.agents.reply_reading import ENDS_WITH_CALLS
from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, Ok, Result
from kindlm.plugins import Adapter
from kindlm.ports import Agent, AgentReply, AgentRequest
from kindlm.section import Maybe, Text
from kindlm.strict_json import ascii_json
from kindlm.suite import AgentTarget
from kindlm.values import check_url, is_url
from kindlm.wires import is_sse, text_encoding

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """An agent's server: its URL, and the headers of each request."""

    who: Who
    endpoint: str
    headers: Mapping[str, str]


_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# Headers whose values are never secrets.
_HARMLESS_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})


def http_target(target: AgentTarget) -> HttpTarget:
    """Return the server of an agent; raises `AgentFailure` for an invalid URL or header."""
    who = Who(target.id)
    if not (is_url(target.endpoint) and target.endpoint.isprintable()):
        hint = "Write it like http://127.0.0.1:8000/chat"
        wrong = "its endpoint (`url` in kindlm.toml) is not an http or https URL"
        raise AgentFailure(who.misconfigured(wrong, hint))
    for name, value in target.headers.items():
        is_allowed = value.isascii() and value.isprintable() and value == value.strip()
        if not (is_allowed and _HEADER_NAME.fullmatch(name)):
            message = f"its header {name!r} contains characters that are not allowed in headers"
            hint = "It may contain stray spaces, quotes or line ends"
            raise AgentFailure(who.misconfigured(message, hint))
    values = [it for name, it in target.headers.items() if name.lower() not in _HARMLESS_HEADERS]
    password = urlsplit(target.endpoint).password or ""
    found = {password, unquote(password), *values, *(it.rpartition(" ")[2] for it in values)}
    secrets = frozenset(secret for secret in found if len(secret) >= SHORTEST_HIDDEN)
    return HttpTarget(Who(target.id, secrets), target.endpoint, target.headers)


@dataclass(slots=True)
class _Shared:
    transport: httpx.AsyncBaseTransport | None = None
    users: int = 0


# Connections belong to the event loop that opened them.
_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


@asynccontextmanager
async def kept_connections() -> AsyncIterator[_Shared]:
    """Share the connections of this event loop; the last user closes them."""
    loop = asyncio.get_running_loop()
    shared = _shared.setdefault(loop, _Shared())
    shared.users += 1
    try:
        yield shared
    finally:
        shared.users -= 1
        if not shared.users:
            # Before closing: a conversation that starts meanwhile must get new connections.
            del _shared[loop]
            if shared.transport is not None:
                await shared.transport.aclose()


_BEGINNING = re.compile(r"[\ufeff\s]*<(?:!doctype\s+html|html)\b", re.IGNORECASE)


def is_page(text: str) -> bool:
    """Return whether a text begins like an HTML document."""
    return _BEGINNING.match(text) is not None


MAX_BODY_BYTES = 10_000_000
EVENT_STREAM = "text/event-stream"

_MARK = re.compile(r'(?<=[\r\n])data: ?\[DONE\](?=[\r\n])|"finish_reason"\s*:\s*"(\w+)"')
"""`[DONE]` in a stream, and the finish reason of a chat completion."""
_LONGEST_MARK = 64
_PAGES = frozenset({"text/html", "application/xhtml+xml"})
"""Media types of pages, such as a login or an error of a proxy.

Some frameworks send all texts as `text/html`: a text is a page only if it begins with markup.
"""
_DEFAULT_HEADERS = {
    "accept": "application/json, text/event-stream;q=0.9, */*;q=0.8",
    # HTTP clients accept a truncated compressed body.
    "accept-encoding": "identity",
    "connection": "keep-alive",
    "content-type": "application/json",
}


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An answer, read to its end; `kind` is its media type, without parameters.

    `has_end` is true if HTTP marked the end of the body, by its last chunk or its length. Otherwise
    the body ends when the connection closes, as it also does if a server fails.
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


async def _read(response: httpx.Response, who: Who) -> HttpReply:
    """Read an answer to its end.

    A compressed answer is an error: it could grow far beyond `MAX_BODY_BYTES`.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        status = response.status_code
        message = f"{who.title} returned {status} with a compressed body ({encoding})"
        hint = "Turn compression off in the agent, or in the proxy before it"
        failure = who.failed(message, hint, status=status, retryable=is_retryable(status))
        raise AgentFailure(failure)
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    response.encoding = text_encoding(response.encoding)
    size, pieces, tail, stopped_for, is_over = 0, list[str](), "\n", "", False
    async for piece in response.aiter_text():
        size += len(piece)
        if size > MAX_BODY_BYTES:
            message = f"{who.title} sent more than {MAX_BODY_BYTES // 1_000_000} MB"
            raise AgentFailure(who.failed(message))
        pieces.append(piece)
        if kind != EVENT_STREAM:
            continue
        tail, end = tail + piece, 0
        for mark in _MARK.finditer(tail):
            end = mark.end()
            stopped_for = mark[1] or stopped_for
            is_over = is_over or (not mark[1] and stopped_for not in ENDS_WITH_CALLS)
        if is_over:
            break  # servers may leave the connection open
        tail = tail[max(end, len(tail) - _LONGEST_MARK) :]
    # httpx raises if a body ends before its declared end.
    has_end = not {"content-length", "transfer-encoding"}.isdisjoint(response.headers)
    return HttpReply(response.status_code, response.headers, kind, "".join(pieces), has_end)


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


_UTF_8 = "Send UTF-8, or name the `charset` in `Content-Type`"
_LONG = 50_000


class Served(Adapter):
    """The base of options of agents behind a URL: makes bodies of requests, and reads answers."""

    needs_endpoint: ClassVar[bool] = True
    hint: ClassVar[str] = WHERE_THE_TEXT_IS
    """The hint for an answer that cannot be read."""
    refused_hint: ClassVar[str | None] = None
    """The hint for a request that the agent rejects as malformed."""
    refused: ClassVar[frozenset[int]] = frozenset({400, 415, 422})
    """The statuses of such a rejection."""

    def open(self, target: AgentTarget, environ: Mapping[str, str]) -> Agent:
        """Return the agent for one conversation; raises like `http_target`."""
        del environ  # the target holds all it needs
        return self.agent(http_target(target))

    def agent(self, server: HttpTarget) -> Agent:
        return ServedAgent(server, self)

    def body_for(self, request: AgentRequest, carried: Any) -> Any:
        """Return the body of a request; `carried` is from the last answer (`ParsedAnswer`)."""
        raise NotImplementedError

    def parse(self, answer: HttpReply, request: AgentRequest) -> ParsedAnswer:
        """Return the content of an answer; raises `FailedReply` or `UnreadableReply`."""
        raise NotImplementedError

    def accepts(self) -> str | None:
        """Return the `Accept` header, None for the default."""
        return None

    def not_sent(self, request: AgentRequest) -> tuple[str, ...]:
        """Return warnings about parts of a request that its body leaves out."""
        return request_warnings(request, sends_system=self.sends_system_text())

    @classmethod
    def check_endpoint(cls, endpoint: str) -> None:
        check_url(endpoint)

    def sends_system_text(self) -> bool:
        """Return whether the body has the system text; by default it has only user messages."""
        return False


class ServedAgent:
    """Implements `ports.Agent` for agents behind a URL; each conversation has its own cookies."""

    def __init__(self, server: HttpTarget, options: Served) -> None:
        import httpx

        self._who = server.who
        self._endpoint = server.endpoint
        self._options = options
        self._carried: Any = None
        self._cookies = httpx.Cookies()
        self._stack = AsyncExitStack()
        self._transport: httpx.AsyncBaseTransport | None = None
        defaults = {**_DEFAULT_HEADERS, "user-agent": f"python-httpx/{httpx.__version__}"}
        if (accept := options.accepts()) is not None:
            defaults["accept"] = accept
        self._headers = defaults | {name.lower(): it for name, it in server.headers.items()}

    async def __aenter__(self) -> Self:
        """Join the shared connections; the first message opens one."""
        from kindlm.http_client import open_transport  # runs without agents do not need it

        shared = await self._stack.enter_async_context(kept_connections())
        self._transport = shared.transport = shared.transport or open_transport()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()

    async def post(self, body: Any, request: AgentRequest, url: str | None = None) -> HttpReply:
        """Post JSON with the headers of a message to the endpoint, or to `url`; see `ask`."""
        url, content = url or self._endpoint, ascii_json(body)
        return await self.ask("POST", url, content, request.timeout_s, request.headers)

    async def ask(
        self,
        method: str,
        to: str,
        content: bytes | None,
        timeout_s: float,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> HttpReply:
        """Send a request, and return the answer.

        Redirects are not followed: another server must not get the user's message and credentials.

        Raises:
            AgentFailure: the status is not 2xx, the answer is an HTML page or larger than
                `MAX_BODY_BYTES`, or the whole exchange took longer than `timeout_s`.
        """
        import httpx

        from kindlm.http_client import UNREACHABLE

        who, transport, url = self._who, self._transport, httpx.URL(to)
        assert transport is not None, "use it as `async with`"
        sent = {**self._headers, **headers}
        request = httpx.Request(method, url, content=content, headers=sent, cookies=self._cookies)
        if url.username or url.password:
            next(httpx.BasicAuth(url.username, url.password).auth_flow(request))
        has_begun = False
        started = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s):
                response = await transport.handle_async_request(request)
                async with aclosing(response):
                    response.request = request
                    if "set-cookie" in response.headers:
                        self._cookies.extract_cookies(response)
                    # An agent that has begun to answer may have called tools: no second try.
                    has_begun = 200 <= response.status_code < 300
                    answer = await _read(response, who)
        except TimeoutError as error:
            raise AgentFailure(who.timed_out(timeout_s, retryable=not has_begun)) from error
        except UnicodeError as error:  # UTF-16 and UTF-32 must begin with a byte order mark
            raise AgentFailure(
                who.failed(f"{who.title} sent bytes that cannot be decoded: {error}", _UTF_8)
            ) from error
        except UNREACHABLE as error:
            retryable, at = not has_begun, self._endpoint
            failure = who.unreachable(at, error, retryable=retryable, has_begun=has_begun)
            raise AgentFailure(failure) from error
        latency_ms = (time.perf_counter() - started) * 1000
        if not 200 <= answer.status < 300:
            raise AgentFailure(who.refused(answer.status, answer.headers, answer.text))
        is_markup = answer.kind in _PAGES and answer.text.lstrip("\ufeff \t\r\n").startswith("<")
        if is_markup or is_page(answer.text):
            raise AgentFailure(who.sent_page(answer.text, answer.status))
        return replace(answer, latency_ms=latency_ms)

    async def answer_to(self, request: AgentRequest) -> HttpReply:
        """Send the message, and return the response; raises `AgentFailure` without one."""
        return await self.post(self._options.body_for(request, self._carried), request)

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        options = self._options
        try:
            answer = await self.answer_to(request)
        except AgentFailure as failed:
            is_refused = failed.error.details.get("status") in options.refused
            hint = options.refused_hint if is_refused else None
            return Err(replace(failed.error, hint=hint or failed.error.hint))
        text = answer.text
        try:
            # Reading a short answer takes less time than starting a thread.
            if len(text) > _LONG:
                parsed = await asyncio.to_thread(options.parse, answer, request)
            else:
                parsed = options.parse(answer, request)
        except UnreadableReply as error:
            return Err(self._who.unreadable(error, text, answer.status, options.hint))
        self._carried = self._carried if parsed.carried is None else parsed.carried
        reply = parsed.reply
        warnings = (*not_decoded(text, _UTF_8), *options.not_sent(request), *reply.warnings)
        return Ok(replace(reply, raw=text, latency_ms=answer.latency_ms, warnings=warnings))
