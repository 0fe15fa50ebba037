"""A server that answers with any bytes, for tests of what talks HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Received:
    """A request as the peer got it; header names are lower case."""

    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Peer:
    """A server that gives the n-th request the n-th answer; the last one stays.

    `None` as an answer cuts the connection; so does one that says `connection: close`, after it is
    sent. What else is sent short of its content-length leaves the client waiting. `left` is set
    once a client has gone; `connections` counts them.
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
                if b"connection: close" in answer.partition(b"\r\n\r\n")[0].lower():
                    break
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
async def open_peer(*answers: bytes | None) -> AsyncIterator[Peer]:
    """Run a peer while the context is open."""
    it = Peer(list(answers))
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    it.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield it
    finally:
        server.close()
        await server.wait_closed()


def http_answer(
    status: int,
    body: Any,
    headers: Mapping[str, str] | None = None,
    *,
    kind: str = "application/json",
) -> bytes:
    """Return an HTTP answer; a body that is neither text nor bytes goes out as JSON."""
    if not isinstance(body, bytes):
        body = (body if isinstance(body, str) else json.dumps(body)).encode("utf-8")
    payload = bytes(body)
    named = {"content-type": kind, "content-length": str(len(payload))}
    lines = [f"{name}: {value}" for name, value in {**named, **(headers or {})}.items()]
    head = "\r\n".join([f"HTTP/1.1 {status} Told", *lines])
    return head.encode("latin-1") + b"\r\n\r\n" + payload
