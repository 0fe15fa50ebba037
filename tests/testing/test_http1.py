"""HTTP/1.1 as clients really send it: in pieces, chunked, and wrong."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.testing.http1 import HttpAnswer, HttpConnection, HttpRequest

HEAD = b"POST /v1/messages?beta=true HTTP/1.1\r\nHost: x\r\n"
SIZED = HEAD + b"Content-Length: 5\r\nX-Api-Key: k\r\n\r\nhello"
CHUNKED = HEAD + (
    b"Transfer-Encoding: chunked\r\n\r\n3;note=x\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: x\r\n\r\n"
)


class Reader(asyncio.StreamReader):
    """Yields what a client sends, piece by piece."""

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__()
        self._pieces = iter(pieces)

    async def read(self, n: int = -1) -> bytes:
        del n
        return next(self._pieces, b"")


class Writer(asyncio.StreamWriter):
    """Keeps what a connection writes."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def __del__(self) -> None: ...

    def write(self, data: Any) -> None:
        assert not self.closed
        self.written += data

    async def drain(self) -> None: ...

    def close(self) -> None:
        self.closed = True


class Recorder:
    """Answers every request alike, and keeps it."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []

    def handle(self, request: HttpRequest) -> HttpAnswer:
        self.requests.append(request)
        return HttpAnswer(200, b"{}")


def receive(pieces: list[bytes]) -> tuple[list[HttpRequest], Writer]:
    """What a connection makes of bytes that arrive in pieces: requests, and what it answers."""
    handler, writer = Recorder(), Writer()

    async def talk() -> None:
        await HttpConnection(handler.handle, Reader([*filter(None, pieces)]), writer).serve()

    asyncio.run(talk())
    return handler.requests, writer


@given(st.lists(st.integers(0, len(SIZED + CHUNKED + SIZED)), max_size=30))
def test_requests_arrive_in_any_pieces(cuts):
    data = SIZED + CHUNKED + SIZED
    edges = [0, *sorted(cuts), len(data)]
    requests, _ = receive([data[a:b] for a, b in itertools.pairwise(edges)])
    assert [(request.path, request.body) for request in requests] == [
        ("/v1/messages", b"hello")
    ] * 3
    assert requests[0].headers["x-api-key"] == "k"


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_refused(data):
    receive([data])


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (HEAD + b"Content-Length: -1\r\n\r\n", 400),
        (HEAD + b"Content-Length: 99999999999\r\n\r\n", 413),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n", 400),
        (HEAD + b"Transfer-Encoding: gzip\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000, 431),
    ],
)
def test_what_is_no_request_is_refused_and_ends_the_connection(data, status):
    requests, writer = receive([data])
    assert requests == []
    assert writer.written.startswith(b"HTTP/1.1 %d " % status)
    assert writer.closed
    json.loads(writer.written.partition(b"\r\n\r\n")[2])


def test_a_chunked_body_that_grows_too_large_is_refused():
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    requests, writer = receive([HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 65])
    assert requests == []
    assert writer.written.startswith(b"HTTP/1.1 413 ")


def test_the_answer_to_head_has_no_body():
    _, writer = receive([b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n"])
    assert b"content-length: 2\r\n" in writer.written
    assert writer.written.endswith(b"\r\n\r\n")


def exchange(port: int, *sent: bytes) -> list[bytes]:
    """Sends each piece after the answer to the one before; gives what came back each time."""
    received = []
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        for piece in sent:
            client.sendall(piece)
            received.append(client.recv(1 << 16))
    return received


def test_connections_are_kept_unless_they_are_to_be_closed(serve):
    server = serve({})
    health = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    first, second = exchange(server.port, health, health)
    assert first == second
    assert b"connection: close" not in first
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(health.replace(b"Host", b"Connection: close\r\nHost"))
        received = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert received.startswith(b"HTTP/1.1 200 OK")
    head = b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    first, second = exchange(server.port, head, b"{}")
    assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert second.startswith(b"HTTP/1.1 200 OK")
