"""What tests of agents share: a way to talk to one, and a peer that answers with any bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kindlm.agents.registry import make_agent
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.ports import Agent, AgentReply, AgentRequest
from kindlm.suite import AgentTarget, Command
from kindlm.transcript import Message, Role


@dataclass
class Received:
    """A request as the peer got it; header names are lower case."""

    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Peer:
    """A server that gives the n-th request the n-th answer; the last one stays.

    `None` as an answer cuts the connection. What is sent short of its content-length leaves the
    client waiting; `left` is set once a client has gone. `connections` counts them.
    """

    answers: list[bytes | None]
    url: str = ""
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
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


def _http(
    body: Any,
    *,
    status: int = 200,
    kind: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return an HTTP answer; a body that is neither text nor bytes goes out as JSON."""
    if not isinstance(body, bytes):
        body = (body if isinstance(body, str) else json.dumps(body)).encode("utf-8")
    payload = bytes(body)
    named = {"content-type": kind, "content-length": str(len(payload))}
    lines = [f"{name}: {value}" for name, value in {**named, **(headers or {})}.items()]
    head = "\r\n".join([f"HTTP/1.1 {status} Told", *lines])
    return head.encode("latin-1") + b"\r\n\r\n" + payload


def _ask(*messages: Message | str, timeout_s: float = 20.0) -> AgentRequest:
    """Return a request; plain texts are the user's."""
    said = tuple(
        message if isinstance(message, Message) else Message(Role.USER, message)
        for message in messages or ("Hello",)
    )
    return AgentRequest("conv-1", said, timeout_s)


def _make(target: AgentTarget | Command, root: Path | None = None, **environ: str) -> Agent:
    made = make_agent(target, environ=environ, root=root or Path())
    assert isinstance(made, Ok), made
    return made.value


def _success(result: Result[AgentReply]) -> AgentReply:
    assert isinstance(result, Ok), result
    return result.value


def _failure(result: Result[Any]) -> KindlmError:
    assert isinstance(result, Err), result
    return result.error


@pytest.fixture
def peer() -> Callable[..., AbstractAsyncContextManager[Peer]]:
    return _peer


@pytest.fixture
def http() -> Callable[..., bytes]:
    return _http


@pytest.fixture
def ask() -> Callable[..., AgentRequest]:
    return _ask


@pytest.fixture
def make() -> Callable[..., Agent]:
    return _make


@pytest.fixture
def success() -> Callable[..., AgentReply]:
    return _success


@pytest.fixture
def failure() -> Callable[..., KindlmError]:
    return _failure
