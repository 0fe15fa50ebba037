"""The HTTP server of the gateway: forwards calls to providers, and streams their answers back.

Bytes pass unchanged, with one exception: it asks chat completion streams for their usage, and
removes the event that reports it. It does not retry, since clients do.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import unquote

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    web,
)

from kindlm.gateway.conversation import ModelCall, SeenConversation
from kindlm.gateway.upstreams import ReceivedAnswer, Upstream
from kindlm.http_client import has_proxies
from kindlm.unreachable import unreachable_reason

KEY_HEADER = "x-kindlm-key"
"""The header with the gateway's key if the usual headers hold the agent's own credentials."""

_MAX_REQUEST_BYTES = 64_000_000
_MAX_RECORDED_BYTES = 10_000_000
"""A longer body is passed on, but not recorded."""

_MAX_HELD_BYTES = 100_000
"""The maximum length of an event that reports usage."""

_CONNECT_S = 30
_HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
    "transfer-encoding", "upgrade",
})  # fmt: skip
_NOT_SENT = _HOP_BY_HOP | {
    "host", "content-length", "authorization", "x-api-key", "api-key", "accept-encoding", "expect",
    "cookie", "traceparent", "x-kindlm-execution", KEY_HEADER,
}  # fmt: skip
_NOT_RETURNED = _HOP_BY_HOP | {"set-cookie"}
_WBITS = {"gzip": 47, "deflate": 15}
_AFTER_EVENT = re.compile(rb"(?<=\n\n)|(?<=\n\r\n)")
_AGENT_LEFT = "The agent closed the connection before the answer was complete."


class GatewayServer(ABC):
    """The endpoint of a run, on a loopback address; as `async with`.

    Its addresses are `/x/<attempt>/<provider>/<path>` and, for all attempts, `/<provider>/<path>`.
    Calls to it need its `key`. If it `replays`, no provider is called.
    """

    def __init__(self, providers: Mapping[str, Upstream], *, replays: bool) -> None:
        self.key = f"sk-kindlm-{secrets.token_hex(16)}"
        self.providers = providers
        self.replays = replays
        self._url = ""
        self._http: ClientSession
        self._stack = AsyncExitStack()

    @abstractmethod
    def find_conversation(
        self, subject: str | None, headers: Mapping[str, str], is_call: bool
    ) -> SeenConversation | None:
        """Return the conversation that a model call or other request belongs to, None if unknown.

        `subject` is the attempt in its address, or None.
        """

    def address(self, subject: str | None = None) -> str:
        """Return the address of an attempt, or of the run, to which `/openai/v1` is appended."""
        return self._url if subject is None else f"{self._url}/x/{subject}"

    async def __aenter__(self) -> Self:
        """Listen on a free port."""
        application = web.Application(client_max_size=_MAX_REQUEST_BYTES)
        application.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(
            application,
            access_log=None,
            logger=logging.getLogger(__name__),
            handler_cancellation=True,  # an agent that leaves ends the call to the provider
            auto_decompress=False,
            shutdown_timeout=0.1,  # for 0, aiohttp waits without a limit
        )
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._http = await self._stack.enter_async_context(
            ClientSession(
                auto_decompress=False,
                timeout=ClientTimeout(total=None, sock_connect=_CONNECT_S),
                connector=TCPConnector(limit=0),
                cookie_jar=DummyCookieJar(),
                trust_env=has_proxies(),
            )
        )
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        subject, provider, path = _split_path(request.rel_url.raw_path)
        if provider not in self.providers:
            return _refused(404, f"No provider is named {provider!r}: write /openai or /anthropic.")
        if not {".", ".."}.isdisjoint(re.split(r"[/\\]", unquote(path))):
            return _refused(400, "A provider path must not contain the segments `.` and `..`.")
        if "upgrade" in request.headers.get("connection", "").lower():
            return _refused(426, "WebSocket is not supported: use HTTP, with or without a stream.")
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        keys = (given, request.headers.get("x-api-key"), request.headers.get(KEY_HEADER))
        has_key = self.key in keys
        is_call = request.method == "POST" and has_key
        conversation = self.find_conversation(subject, request.headers, is_call)
        if not has_key:
            variable = self.providers[provider].key_variable
            if conversation is not None:
                conversation.lose(
                    f"A call to {provider}/{path} reached the gateway without its key and was "
                    "rejected with 401.",
                    f"Let the agent take its key from {variable}: it holds the key of the gateway",
                )
            return _refused(401, f"This is not the key of the gateway: take it from {variable}.")
        if conversation is None:
            if subject is not None:
                return _refused(410, "The conversation of this address is over.")
            if self.replays:
                return _refused(422, "The call cannot be assigned to an execution.")
        elif is_call:
            return await self._call(request, conversation, f"{provider}/{path}")
        elif self.replays:
            return _refused(422, f"{request.method} is not replayed.")
        forwarding = _Forwarding(self._http, request, self.providers[provider], path)
        return await forwarding.forward(await request.read())

    async def _call(
        self, request: web.Request, conversation: SeenConversation, path: str
    ) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        conversation.open[task] = None
        try:
            data = await request.read()
            body = _json(_decoded(data, request.headers.get("content-encoding", "")))
            if conversation.desk.is_over():
                conversation.desk.leave_unfinished()
                conversation.lose(
                    "A limit of the run stopped the agent's model calls.",
                    "Raise the limit, or let the agent make fewer calls",
                )
                return _refused(402, "A limit of the run (cost or time) allows no more calls.")
            call = conversation.record_request(path, body)
            conversation.open[task] = call
            if self.replays:
                return self._replayed(conversation, call, body)
            provider, _, rest = path.partition("/")
            forwarding = _Forwarding(self._http, request, self.providers[provider], rest, body)
            call.answer_so_far = forwarding.answer_so_far
            try:
                async with conversation.desk.paced(provider):
                    call.begun = time.perf_counter()
                    return await forwarding.forward(data)
            finally:
                conversation.record_answer(call, forwarding.answer_so_far())
        except web.HTTPRequestEntityTooLarge:
            conversation.lose("A request from the agent to its model exceeds 64 MB.")
            raise
        finally:
            conversation.open.pop(task, None)

    def _replayed(self, conversation: SeenConversation, call: ModelCall, body: Any) -> web.Response:
        models = conversation.desk.models
        assert models is not None, "an agent without recorded answers of models does not run"
        found = models.answer(call.path, body)
        if isinstance(found, str):
            conversation.record_answer(call, ReceivedAnswer(422, "", None, found))
            conversation.lose(found)
            return _refused(422, found)
        assert found.answer is not None
        got = ReceivedAnswer(200, found.content_type, found.answer, recorded=found)
        conversation.record_answer(call, got)
        data = found.answer.encode()
        if call.path == "openai/chat/completions" and _asking_for_usage(body, ""):
            # The gateway asked for the usage in the record, not the agent.
            without = WithoutUsage()
            data = without.pass_on(data) + without.rest()
        return web.Response(body=data, headers={"content-type": found.content_type})


@dataclass(slots=True)
class _Forwarding:
    """Forwards one call to a provider, and its answer to the agent."""

    http: ClientSession
    request: web.Request
    upstream: Upstream
    path: str
    body: Any = None
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    got: bytearray = field(default_factory=bytearray)
    problem: str | None = _AGENT_LEFT
    is_sent: bool = False

    def answer_so_far(self) -> ReceivedAnswer:
        """Return the part of the answer that has arrived."""
        text = None
        if self.status and len(self.got) <= _MAX_RECORDED_BYTES:
            text = _decoded(bytes(self.got), self.headers.get("content-encoding", ""))
        kind = self.headers.get("content-type", "")
        hint = "" if self.problem is _AGENT_LEFT else self._hint()
        return ReceivedAnswer(self.status, kind, text, self.problem, None, self.is_sent, hint)

    def _hint(self) -> str:
        """Return what to do about a failed call."""
        has_key = self.upstream.headers or KEY_HEADER in self.request.headers
        if self.status in (401, 403) and not has_key:
            return f"kindlm has no key for this provider: set {self.upstream.key_variable}"
        hint = "To see the call and its answer, show this execution with --verbose"
        if KEY_HEADER in self.request.headers:
            return hint
        return f"{hint}; if a key was refused, check {self.upstream.key_variable} where kindlm runs"

    async def forward(self, data: bytes) -> web.StreamResponse:
        """Forward the request, and stream the answer back."""
        request, upstream = self.request, self.upstream
        asked = None
        if self.path == "chat/completions":
            asked = _asking_for_usage(self.body, request.headers.get("content-encoding", ""))
        headers = [(k, v) for k, v in request.headers.items() if k.lower() not in _NOT_SENT]
        if KEY_HEADER in request.headers:
            names = ("authorization", "x-api-key")
            headers += [(n, request.headers[n]) for n in names if n in request.headers]
        else:
            headers += upstream.headers.items()
        takes_gzip = asked is None and "gzip" in request.headers.get("accept-encoding", "")
        headers.append(("Accept-Encoding", "gzip" if takes_gzip else "identity"))
        url = f"{upstream.base_url}/{self.path}"
        if query := request.rel_url.raw_query_string:
            url = f"{url}?{query}"
        out: web.StreamResponse | None = None
        self.is_sent = True
        try:
            async with self.http.request(
                request.method, url, headers=headers, data=asked or data, allow_redirects=False
            ) as answer:
                self.status, self.headers = answer.status, answer.headers
                out = web.StreamResponse(status=answer.status, reason=answer.reason)
                is_stream = "event-stream" in answer.headers.get("content-type", "")
                without = WithoutUsage() if asked is not None and is_stream else None
                left_out = _NOT_RETURNED | ({"content-length"} if without else set())
                for name, value in answer.headers.items():
                    if name.lower() not in left_out:
                        out.headers.add(name, value)
                await out.prepare(request)
                async for chunk in answer.content.iter_any():
                    if len(self.got) <= _MAX_RECORDED_BYTES:
                        self.got += chunk
                    if passed := chunk if without is None else without.pass_on(chunk):
                        await out.write(passed)
                if without is not None and (rest := without.rest()):
                    await out.write(rest)
            self.problem = None
            await out.write_eof()
        except (ClientError, OSError, ValueError) as error:
            self.is_sent = not isinstance(error, ClientConnectorError)
            if self.problem is not None:
                why = "cut off the answer" if self.status else "could not be called"
                self.problem = f"The provider {why}: {unreachable_reason(error).rstrip('.')}."
            if out is None or not out.prepared:
                return _refused(502, self.problem or _AGENT_LEFT)
            # The agent must see that the stream was cut off.
            if request.transport is not None:
                request.transport.abort()
        return out


def _split_path(path: str) -> tuple[str | None, str, str]:
    """Return the attempt in an address, or None; the provider; and the provider's path."""
    subject: str | None = None
    rest = path.removeprefix("/")
    if rest.startswith("x/"):
        subject, _, rest = rest[2:].partition("/")
    provider, _, rest = rest.partition("/")
    # Some clients send the version, others expect it in the base URL.
    return subject, provider, rest.strip("/").removeprefix("v1/")


def _json(text: str | bytes | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


def _refused(status: int, message: str) -> web.Response:
    """Return an error that SDKs retry only if the provider could not be called (502)."""
    error = {"message": f"[kindlm's gateway] {message}", "type": "kindlm_gateway", "code": None}
    headers = {} if status == 502 else {"x-should-retry": "false"}
    return web.json_response({"type": "error", "error": error}, status=status, headers=headers)


def _decoded(data: bytes, encoding: str) -> str | None:
    """Return a body as text; None if it cannot be decoded or is too long."""
    encoding = encoding.strip().lower()
    try:
        if encoding in _WBITS:
            data = zlib.decompressobj(_WBITS[encoding]).decompress(data, _MAX_RECORDED_BYTES + 1)
        elif encoding not in ("", "identity"):
            return None
        return data.decode() if len(data) <= _MAX_RECORDED_BYTES else None
    except (zlib.error, UnicodeDecodeError):
        return None


def _asking_for_usage(body: Any, encoding: str) -> bytes | None:
    """Return a request for a stream, extended to ask for its usage.

    None for other requests, and for those with `stream_options`.
    """
    if encoding or not isinstance(body, dict) or body.get("stream") is not True:
        return None
    if body.get("stream_options") is not None:
        return None
    return json.dumps({**body, "stream_options": {"include_usage": True}}).encode()


class WithoutUsage:
    """Removes the event that reports usage from the bytes of a stream."""

    def __init__(self) -> None:
        self._rest = b""

    def pass_on(self, chunk: bytes) -> bytes:
        """Return the bytes to pass on: whole events, and events that are too long to hold."""
        *events, self._rest = _AFTER_EVENT.split(self._rest + chunk)
        if len(self._rest) > _MAX_HELD_BYTES:
            events, self._rest = [*events, self._rest], b""
        return b"".join(event for event in events if not _only_reports_usage(event))

    def rest(self) -> bytes:
        """Return the remaining bytes at the end of the stream."""
        return b"" if _only_reports_usage(self._rest) else self._rest


def _only_reports_usage(event: bytes) -> bool:
    if b'"usage"' not in event or not event.startswith(b"data:"):
        return False
    chunk = _json(event[5:])
    return isinstance(chunk, dict) and chunk.get("choices") == [] and bool(chunk.get("usage"))
