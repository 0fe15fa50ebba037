"""The server's side of HTTP/1.1: h11 speaks the protocol, asyncio moves the bytes.

A connection answers one request at a time. A handler is a function from request to answer. The
answer defines its delivery (late, stalled, cut off), so faults happen on a real socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Literal

import h11

from kindlm.dataclass import dataclass

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
_READ_BYTES = 256 * 1024

Cut = Literal["before", "headers", "body"]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A complete request; the path has no query, and header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer, and how it is delivered.

    `events` replace the body: each is sent as one chunk. `delay_s` passes before the first byte,
    `stall_s` in the middle of the body. `cut` is where the connection closes early.
    """

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"
    events: tuple[bytes, ...] = ()
    delay_s: float = 0.0
    stall_s: float = 0.0
    cut: Cut | None = None


Handler = Callable[[HttpRequest], HttpAnswer]
"""Returns the answer to a complete request."""


@contextlib.asynccontextmanager
async def listening(handler: Handler, host: str, port: int) -> AsyncIterator[int]:
    """Serve while the context is open; yields the port, a free one for `port` 0."""
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(HttpConnection(handler, reader, writer).serve())
        connections[task] = writer
        task.add_done_callback(connections.pop)

    server = await asyncio.start_server(connected, host, port, backlog=1024)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection, writer in connections.items():
            connection.cancel()
            writer.transport.abort()
        await server.wait_closed()


class HttpConnection:
    """One client connection: reads requests, calls the handler, sends the answers."""

    def __init__(
        self, handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._handler = handler
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._head: h11.Request | None = None

    async def serve(self) -> None:
        """Answer one request after another, until the client or an answer closes the connection."""
        try:
            while (answer := await self._next_answer()) is not None:
                await self._send(answer)
                if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                    break
                self._http.start_next_cycle()
                self._head = None
        except ConnectionError:
            pass  # the client has gone
        finally:
            self._writer.close()

    async def _next_answer(self) -> HttpAnswer | None:
        """Read a request and return its answer; None if the client closed the connection."""
        http, length, body = self._http, 0, bytearray()
        while True:
            try:
                event = http.next_event()
            except h11.RemoteProtocolError as error:
                return _refusal(error.error_status_hint, str(error))
            if isinstance(event, h11.EndOfMessage):
                return self._handler(self._request(bytes(body)))
            if isinstance(event, h11.Request):
                self._head, length = event, int(dict(event.headers).get(b"content-length", 0))
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                if http.they_are_waiting_for_100_continue:
                    proceed = h11.InformationalResponse(
                        status_code=100, headers=[], reason="Continue"
                    )
                    self._writer.write(self._encoded(proceed))
                data = await self._reader.read(_READ_BYTES)
                if not data:
                    return None
                http.receive_data(data)
            if max(length, len(body)) > MAX_BODY_BYTES:
                return _refusal(413, "the request body is too large")

    def _request(self, body: bytes) -> HttpRequest:
        assert self._head is not None
        headers: dict[str, str] = {}
        for raw_name, raw_value in self._head.headers:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        path = self._head.target.decode("latin-1").partition("?")[0]
        return HttpRequest(self._head.method.decode("latin-1"), path, headers, body)

    async def _send(self, answer: HttpAnswer) -> None:
        """Send an answer, or the part of it before a fault."""
        if answer.delay_s > 0:
            await asyncio.sleep(answer.delay_s)
        if answer.cut == "before":
            return
        headers = [("content-type", answer.content_type), *answer.headers]
        if answer.events:
            headers.append(("transfer-encoding", "chunked"))
            parts, middle = answer.events, (len(answer.events) + 1) // 2
        else:
            headers.append(("content-length", str(len(answer.body))))
            half = len(answer.body) // 2
            parts, middle = (answer.body[:half], answer.body[half:]), 1
        if self._head is not None and self._head.method == b"HEAD":
            parts = ()
        reason = _REASONS.get(answer.status, "Unknown")
        response = h11.Response(status_code=answer.status, headers=headers, reason=reason)
        sent = self._encoded(response)
        if answer.cut != "headers":
            sent += self._encoded(*map(h11.Data, parts[:middle]))
        if answer.stall_s > 0:
            self._writer.write(sent)
            sent = b""
            await asyncio.sleep(answer.stall_s)
        if answer.cut is None:
            sent += self._encoded(*map(h11.Data, parts[middle:]), h11.EndOfMessage())
        self._writer.write(sent)
        await self._writer.drain()

    def _encoded(self, *events: h11.Event) -> bytes:
        return b"".join(self._http.send(event) or b"" for event in events)


def _refusal(status: int, reason: str) -> HttpAnswer:
    """Return the answer to an invalid request; it closes the connection."""
    body = json.dumps({"error": {"message": reason}}).encode("ascii")
    return HttpAnswer(status, body, (("connection", "close"),))


_REASONS = {status.value: status.phrase for status in HTTPStatus}
