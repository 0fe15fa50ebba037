"""A small HTTP/1.1 server side on asyncio: enough for API clients, and fast.

One request is answered at a time on a connection; bytes that arrive meanwhile wait in the buffer.
A handler is a plain function from request to answer. How the answer is delivered (late, stalled,
cut off) is part of the answer, so that faults are played on a real socket.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024

Cut = Literal["before", "headers", "body"]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A complete request. Header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What to send back, and how.

    Attributes:
        status: HTTP status code.
        body: The whole body; for a stream, its events joined.
        headers: Headers beside content type and length.
        content_type: Media type of the body.
        events: Parts of a streamed body, sent as one chunk each; empty for an ordinary body.
        delay_s: Seconds to wait before the first byte.
        stall_s: Seconds to wait in the middle of the body.
        cut: Where to close the connection early: before anything, after the headers, or in the
            middle of the body.
    """

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"
    events: tuple[bytes, ...] = ()
    delay_s: float = 0.0
    stall_s: float = 0.0
    cut: Cut | None = None


class MalformedRequest(Exception):  # noqa: N818 - it names what arrived, like a value
    """The bytes on the connection are no request that this server reads."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Head:
    method: str
    path: str
    headers: dict[str, str]
    length: int
    chunked: bool

    @property
    def expects_continue(self) -> bool:
        return self.headers.get("expect", "").lower() == "100-continue"


class RequestParser:
    """Turns received bytes into requests, incrementally."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._chunks = bytearray()
        self._continue_due = False

    def feed(self, data: bytes) -> None:
        """Adds received bytes."""
        self._buffer += data

    def next_request(self) -> HttpRequest | None:
        """The next complete request, or None while bytes are missing.

        Raises:
            MalformedRequest: when the bytes cannot become a request.
        """
        if self._head is None:
            self._head = self._take_head()
            if self._head is None:
                return None
            self._continue_due = self._head.expects_continue
        head = self._head
        body = self._take_chunked() if head.chunked else self._take_sized(head.length)
        if body is None:
            return None
        self._head = None
        self._continue_due = False
        return HttpRequest(head.method, head.path, head.headers, body)

    def take_continue_due(self) -> bool:
        """Whether the client waits for `100 Continue`; true once a request."""
        due, self._continue_due = self._continue_due, False
        return due

    def _take_head(self) -> _Head | None:
        while self._buffer.startswith(b"\r\n"):
            del self._buffer[:2]
        end = self._buffer.find(b"\r\n\r\n")
        if end > MAX_HEAD_BYTES or (end < 0 and len(self._buffer) > MAX_HEAD_BYTES):
            raise MalformedRequest(431, "the request headers are too large")
        if end < 0:
            return None
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        return _parse_head(lines)

    def _take_sized(self, length: int) -> bytes | None:
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _take_chunked(self) -> bytes | None:
        while True:
            line_end = self._buffer.find(b"\r\n")
            if line_end < 0:
                return None
            size = _chunk_size(self._buffer[:line_end])
            if len(self._chunks) + size > MAX_BODY_BYTES:
                raise MalformedRequest(413, "the request body is too large")
            if size == 0:
                return self._take_last_chunk(line_end)
            end = line_end + 2 + size
            if len(self._buffer) < end + 2:
                return None
            if self._buffer[end : end + 2] != b"\r\n":
                raise MalformedRequest(400, "a chunk is longer than its size says")
            self._chunks += self._buffer[line_end + 2 : end]
            del self._buffer[: end + 2]

    def _take_last_chunk(self, line_end: int) -> bytes | None:
        """Reads past the trailers, which nobody needs, and hands out the body."""
        if self._buffer[line_end : line_end + 4] == b"\r\n\r\n":
            end = line_end + 4
        else:
            end = self._buffer.find(b"\r\n\r\n", line_end) + 4
            if end < 4:  # find() says -1: the trailers are still on their way
                return None
        del self._buffer[:end]
        body, self._chunks = bytes(self._chunks), bytearray()
        return body


def _chunk_size(line: bytes | bytearray) -> int:
    digits = bytes(line).split(b";", 1)[0].strip()
    try:
        return int(digits, 16)
    except ValueError:
        raise MalformedRequest(400, "a chunk size is not a hexadecimal number") from None


def _parse_head(lines: list[str]) -> _Head:
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise MalformedRequest(400, "the request line is not HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise MalformedRequest(400, "a header line has no name")
        key = name.lower()
        value = value.strip()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    chunked = headers.get("transfer-encoding", "").lower() == "chunked"
    if "transfer-encoding" in headers and (not chunked or "content-length" in headers):
        raise MalformedRequest(400, "the length of the body is ambiguous")
    return _Head(parts[0], parts[1].partition("?")[0], headers, _length(headers), chunked)


def _length(headers: Mapping[str, str]) -> int:
    written = headers.get("content-length", "0")
    if not (written.isascii() and written.isdigit()):
        raise MalformedRequest(400, "Content-Length is not a number")
    length = int(written)
    if length > MAX_BODY_BYTES:
        raise MalformedRequest(413, "the request body is too large")
    return length


class HttpConnection(asyncio.Protocol):
    """One client connection: parses requests, asks the handler, plays the answer."""

    def __init__(
        self,
        handler: Callable[[HttpRequest], HttpAnswer],
        open_connections: set[HttpConnection],
    ) -> None:
        self._handler = handler
        self._open_connections = open_connections
        self._parser = RequestParser()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remembers the connection, so that the server can close it."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._open_connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Forgets what was still to be sent."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._open_connections.discard(self)

    def data_received(self, data: bytes) -> None:
        """Takes bytes of the client."""
        self._parser.feed(data)
        self._advance()

    def close(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _advance(self) -> None:
        while self._transport is not None and self._timer is None:
            if self._transport.is_closing():
                return
            try:
                request = self._parser.next_request()
            except MalformedRequest as malformed:
                self._refuse(malformed)
                return
            if request is None:
                if self._parser.take_continue_due():
                    self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return
            self._play(self._handler(request), keep_alive=_keeps_alive(request))

    def _refuse(self, malformed: MalformedRequest) -> None:
        body = b'{"error": {"message": "' + malformed.reason.encode("ascii") + b'"}}'
        self._send(HttpAnswer(malformed.status, body), keep_alive=False)

    def _play(self, answer: HttpAnswer, *, keep_alive: bool) -> None:
        if answer.delay_s > 0:
            self._later(answer.delay_s, lambda: self._send(answer, keep_alive=keep_alive))
        else:
            self._send(answer, keep_alive=keep_alive)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        def fire() -> None:
            self._timer = None
            action()
            self._advance()

        self._timer = asyncio.get_running_loop().call_later(seconds, fire)

    def _send(self, answer: HttpAnswer, *, keep_alive: bool) -> None:
        transport = self._transport
        if transport is None:
            return
        if answer.cut == "before":
            transport.close()
            return
        head, first, rest = _encode(answer, keep_alive=keep_alive)
        if answer.cut is not None:
            transport.write(head + first if answer.cut == "body" else head)
            transport.close()
        elif answer.stall_s > 0:
            transport.write(head + first)
            self._later(answer.stall_s, lambda: self._finish(rest, keep_alive=keep_alive))
        else:
            self._finish(head + first + rest, keep_alive=keep_alive)

    def _finish(self, data: bytes, *, keep_alive: bool) -> None:
        if self._transport is None:
            return
        self._transport.write(data)
        if not keep_alive:
            self._transport.close()


def _keeps_alive(request: HttpRequest) -> bool:
    return request.headers.get("connection", "").lower() != "close"


def _encode(answer: HttpAnswer, *, keep_alive: bool) -> tuple[bytes, bytes, bytes]:
    """The head and the two halves of the body, as bytes on the wire."""
    lines = [
        f"HTTP/1.1 {answer.status} {_reason(answer.status)}",
        f"content-type: {answer.content_type}",
        "connection: keep-alive" if keep_alive else "connection: close",
    ]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    if answer.events:
        lines.append("transfer-encoding: chunked")
        middle = (len(answer.events) + 1) // 2
        first = b"".join(map(_chunk, answer.events[:middle]))
        rest = b"".join(map(_chunk, answer.events[middle:])) + b"0\r\n\r\n"
    else:
        lines.append(f"content-length: {len(answer.body)}")
        middle = len(answer.body) // 2
        first, rest = answer.body[:middle], answer.body[middle:]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"), first, rest


def _chunk(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


def _reason(status: int) -> str:
    if status == 529:  # Anthropic's own
        return "Overloaded"
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
