"""The `http` adapter: agents that take JSON by POST and answer with JSON, text or a stream."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from kindlm.agents import failures
from kindlm.agents.http_options import HttpSettings, http_settings
from kindlm.agents.http_pool import shared_pool
from kindlm.agents.http_request import make_body, request_warnings
from kindlm.agents.reply_reading import Reading, Told, UnreadableReply, agent_reply, read_reply
from kindlm.agents.sse import parse_events
from kindlm.agents.stream_reading import read_stream
from kindlm.errors import Err, ErrorCode, Ok, Result
from kindlm.http_client import UNREACHABLE, ClientPool
from kindlm.ports import AgentReply, AgentRequest
from kindlm.strict_json import parse_json
from kindlm.suite import AgentTarget

__all__ = ["MAX_BODY_BYTES", "HttpAgent", "http_agent"]

MAX_BODY_BYTES = 10_000_000
_STREAM_END = re.compile(r"(?:^|[\r\n])data: ?\[DONE\][\r\n]")
_MAX_REDIRECTS = 5
_NO_TEXT = (
    "nothing in the answer is known to be its text, so that all of it was taken: say where it is "
    "with `responsePath`"
)
_KEEPS_METHOD = frozenset({307, 308})
_DEFAULT_HEADERS = {
    "accept": "application/json, text/event-stream;q=0.9, */*;q=0.8",
    "content-type": "application/json",
}


def http_agent(target: AgentTarget, environ: Mapping[str, str], root: Path) -> Result[HttpAgent]:
    """Make an agent for one conversation; see http_options for its options."""
    del environ, root  # all it needs stands in the target
    settings = http_settings(target)
    return settings if isinstance(settings, Err) else Ok(HttpAgent(settings.value))


class HttpAgent:
    """Implements `ports.Agent`. Each conversation has cookies of its own."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._cookies = httpx.Cookies()
        self._stack = AsyncExitStack()
        self._pool: ClientPool | None = None

    async def __aenter__(self) -> Self:
        """Take a share in the connections; they are made with the first message."""
        self._pool = await self._stack.enter_async_context(shared_pool())
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Give the share back; the last one closes the connections."""
        await self._stack.aclose()

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send one message; see `ports.Agent`."""
        who = self._settings.who
        started = time.perf_counter()
        try:
            async with asyncio.timeout(request.timeout_s):
                answer = await self._post(request)
        except TimeoutError:
            return Err(failures.of_timeout(who, request.timeout_s))
        except _TooLong:
            message = f"{who.title} sent more than {MAX_BODY_BYTES // 1_000_000} MB"
            return Err(failures.failed(who, ErrorCode.PROVIDER_API_ERROR, message))
        except UNREACHABLE as error:
            return Err(failures.of_network(who, self._settings.endpoint, error))
        latency_ms = (time.perf_counter() - started) * 1000
        if not 200 <= answer.status < 300:
            return Err(failures.of_status(who, answer.status, answer.headers, answer.text))
        try:
            told = _read(answer, self._settings.reading)
        except UnreadableReply as error:
            return Err(failures.of_reply(who, str(error), answer.text, answer.status))
        warnings = request_warnings(request, self._settings.form, self._settings.template)
        if told.is_whole:
            warnings = (*warnings, _NO_TEXT)
        return Ok(agent_reply(told, answer.text, latency_ms, warnings))

    async def _post(self, request: AgentRequest) -> _Answer:
        settings = self._settings
        assert self._pool is not None, "use it as `async with`"
        body = make_body(request, settings.form, settings.template)
        # Plain ASCII, so that lone surrogates, which models do write, survive the way.
        content = json.dumps(body, separators=(",", ":")).encode("ascii")
        written = {name.lower(): value for name, value in settings.headers.items()}
        headers = _DEFAULT_HEADERS | written
        with self._pool.borrow() as client:
            return await self._exchange(client, content, headers)

    async def _exchange(
        self, client: httpx.AsyncClient, content: bytes, headers: Mapping[str, str]
    ) -> _Answer:
        url: httpx.URL | str = self._settings.endpoint
        for _ in range(_MAX_REDIRECTS):
            sent = client.build_request(
                "POST", url, content=content, headers=headers, cookies=self._cookies
            )
            got = await client.send(sent, stream=True)
            try:
                if "set-cookie" in got.headers:
                    self._cookies.extract_cookies(got)
                moved = _same_place(got)
                if moved is None:
                    return await self._read_body(got)
                await got.aread()  # so that the connection can be used again
                url = moved
            finally:
                await got.aclose()
        return _Answer(got.status_code, got.headers, "", "")

    async def _read_body(self, response: httpx.Response) -> _Answer:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        response.encoding = _charset(response)
        size, pieces, tail = 0, list[str](), "\n"
        async for piece in response.aiter_text():
            size += len(piece)
            if size > MAX_BODY_BYTES:
                raise _TooLong
            pieces.append(piece)
            tail = tail[-len("\ndata: [DONE]\n") :] + piece
            if kind == "text/event-stream" and _STREAM_END.search(tail):
                break  # servers may leave the connection open
        return _Answer(response.status_code, response.headers, kind, "".join(pieces))


class _TooLong(Exception):  # noqa: N818 - it names what arrived
    """A body that is longer than any answer."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """An HTTP answer, read to its end; `kind` is its media type."""

    status: int
    headers: Mapping[str, str]
    kind: str
    text: str


def _charset(response: httpx.Response) -> str:
    """Return the encoding that an answer names, if it can be used for text."""
    named = response.charset_encoding or "utf-8"
    try:
        b"\xff".decode(named, "replace")
    except (LookupError, ValueError):  # Python has codecs that decode no text, or not all of it
        return "utf-8"
    return named


def _same_place(response: httpx.Response) -> httpx.URL | None:
    """Return where a request is to be repeated as it is: at the same server, else nowhere.

    The request holds what is meant for one server alone: the user's message and credentials.
    """
    if response.status_code not in _KEEPS_METHOD or response.next_request is None:
        return None
    here, there = response.request.url, response.next_request.url
    if (here.scheme, here.host, here.port) != (there.scheme, there.host, there.port):
        return None
    return there


def _read(answer: _Answer, reading: Reading) -> Told:
    if answer.kind == "text/event-stream":
        return read_stream(parse_events(answer.text), reading)
    if answer.kind.startswith("text/"):
        return read_reply(answer.text, Reading())
    return read_reply(_json_of(answer), reading)


def _json_of(answer: _Answer) -> Any:
    """Return the JSON value; a body that does not say to be JSON may be bare text."""
    try:
        return parse_json(answer.text)
    except ValueError as error:
        if answer.kind.endswith("json"):
            raise UnreadableReply(f"no JSON: {error}") from None
        return answer.text
