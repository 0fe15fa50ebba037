"""What tests of providers share: requests, and a peer that answers with any bytes one likes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import pytest

from kindlm.errors import Ok
from kindlm.ports import ModelClient, ModelRequest
from kindlm.providers.registry import make_client
from kindlm.suite import ModelParams, ProviderSettings
from kindlm.transcript import Message, Role

KEY = "sk-planted-0123456789abcdef"

OPENAI_REPLY: dict[str, Any] = {
    "id": "chatcmpl-1",
    "model": "gpt-4o-2024-08-06",
    "choices": [{"index": 0, "message": {"content": "Hi there!"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
}
ANTHROPIC_REPLY: dict[str, Any] = {
    "id": "msg_1",
    "model": "claude-sonnet-4-5-20250929",
    "content": [{"type": "text", "text": "Hi there!"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 10, "output_tokens": 5},
}


def _make_request(
    *messages: Message, model: str = "gpt-4o", timeout_s: float = 20.0, **changes: Any
) -> ModelRequest:
    """Return a request; one word of the user if no messages are given."""
    return ModelRequest(
        model=model,
        messages=messages or (Message(Role.USER, "Hello"),),
        params=changes.pop("params", ModelParams()),
        timeout_s=timeout_s,
        **changes,
    )


def _http(status: int, body: Any, headers: Mapping[str, str] | None = None) -> bytes:
    """Return an HTTP answer; a body that is no text goes out as JSON."""
    payload = (body if isinstance(body, str) else json.dumps(body)).encode("utf-8")
    named = {"content-type": "application/json", "content-length": str(len(payload))}
    lines = [f"{name}: {value}" for name, value in {**named, **(headers or {})}.items()]
    head = "\r\n".join([f"HTTP/1.1 {status} Told", *lines])
    return head.encode("latin-1") + b"\r\n\r\n" + payload


@dataclass
class Received:
    """A request as the peer got it; header names are lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Peer:
    """A server that gives the n-th request the n-th answer; the last one stays.

    `None` as an answer cuts the connection. What is sent short of its content-length leaves the
    client waiting; `left` is set once a client has gone.
    """

    answers: list[bytes | None]
    url: str = ""
    received: list[Received] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                self.received.append(await _read(reader))
                self.arrived.set()
                answer = self.answers[min(len(self.received), len(self.answers)) - 1]
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers["content-length"]))
    return Received(head[0].split()[1], headers, json.loads(body))


@contextlib.asynccontextmanager
async def _peer(*answers: bytes | None) -> AsyncIterator[Peer]:
    """Run a peer while the context is open."""
    it = Peer(list(answers))
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    it.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield it
    finally:
        server.close()
        await server.wait_closed()


@dataclass(frozen=True)
class Api:
    """One of the two wire formats, with what a test of both needs to know."""

    type: str
    variable: str
    base_path: str
    path: str
    reply: dict[str, Any]

    def client(self, base_url: str, key: str = KEY) -> ModelClient:
        settings = ProviderSettings(self.type, self.type, self.variable, base_url + self.base_path)
        made = make_client(settings, environ={self.variable: key})
        assert isinstance(made, Ok)
        return made.value


APIS = (
    Api("openai", "OPENAI_API_KEY", "/v1", "/v1/chat/completions", OPENAI_REPLY),
    Api("anthropic", "ANTHROPIC_API_KEY", "", "/v1/messages", ANTHROPIC_REPLY),
)


@pytest.fixture(params=APIS, ids=[api.type for api in APIS])
def api(request: pytest.FixtureRequest) -> Api:
    chosen = request.param
    assert isinstance(chosen, Api)
    return chosen


@contextlib.asynccontextmanager
async def _talking(api: Api, *answers: bytes | None) -> AsyncIterator[tuple[ModelClient, Peer]]:
    """Open a client of an API whose server gives these answers."""
    async with _peer(*answers) as server:
        client = api.client(server.url)
        try:
            yield client, server
        finally:
            await client.aclose()


@pytest.fixture
def make_request() -> Callable[..., ModelRequest]:
    return _make_request


@pytest.fixture
def http() -> Callable[..., bytes]:
    return _http


@pytest.fixture
def peer() -> Callable[..., AbstractAsyncContextManager[Peer]]:
    return _peer


@pytest.fixture
def talking() -> Callable[..., AbstractAsyncContextManager[tuple[ModelClient, Peer]]]:
    return _talking
