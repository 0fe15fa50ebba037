"""The server's side of HTTP/1.1: h11 speaks the protocol, asyncio moves the bytes.

A connection answers one request at a time; bytes that arrive meanwhile wait in its buffer. A
handler is a plain function from request to answer. The answer says how it is delivered (late,
stalled, cut off), so faults are played on a real socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal

import h11

from kindlm.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024

Cut = Literal["before", "headers", "body"]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A complete request. The path has no query, header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What to send back, and how.

    Attributes:
        status: HTTP status code.
        body: The whole body, unless there are events.
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


Handler = Callable[[HttpRequest], HttpAnswer]
"""Answers a request, as soon as all of it is there."""


@contextlib.asynccontextmanager
async def listening(handler: Handler, host: str, port: int) -> AsyncIterator[int]:
    """Serves while the context is open; yields the port, a free one if 0 is asked for.

    Raises:
        OSError: when the address cannot be used.
    """
    connections: set[HttpConnection] = set()
    server = await asyncio.get_running_loop().create_server(
        lambda: HttpConnection(handler, connections), host, port, backlog=1024
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in tuple(connections):
            connection.close()
        await server.wait_closed()


class HttpConnection(asyncio.Protocol):
    """One client connection: reads requests, asks the handler, plays the answers."""

    def __init__(self, handler: Handler, open_connections: set[HttpConnection]) -> None:
        self._handler = handler
        self._open_connections = open_connections
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._request: h11.Request | None = None
        self._body = bytearray()
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
        self._http.receive_data(data)
        self._advance()

    def close(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _advance(self) -> None:
        """Reads until bytes are missing, an answer is due later, or the connection ends."""
        while (
            self._timer is None and self._transport is not None and not self._transport.is_closing()
        ):
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse(error.error_status_hint, str(error))
                return
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    proceed = h11.InformationalResponse(
                        status_code=100, headers=[], reason="Continue"
                    )
                    self._transport.write(self._encoded(proceed))
                return
            self._take(event)

    def _take(self, event: h11.Event | type[h11.NEED_DATA | h11.PAUSED]) -> None:
        if isinstance(event, h11.Request):
            self._request = event
            self._body.clear()
            length = int(dict(event.headers).get(b"content-length", 0))
            if event.method == b"CONNECT":
                self._refuse(405, "this is not a proxy")
            elif length > MAX_BODY_BYTES:
                self._refuse(413, "the request body is too large")
        elif isinstance(event, h11.Data):
            self._body += event.data
            if len(self._body) > MAX_BODY_BYTES:
                self._refuse(413, "the request body is too large")
        elif isinstance(event, h11.EndOfMessage):
            answer = self._handler(self._complete())
            if answer.delay_s > 0:
                self._later(answer.delay_s, lambda: self._send(answer))
            else:
                self._send(answer)

    def _complete(self) -> HttpRequest:
        assert self._request is not None
        headers: dict[str, str] = {}
        for raw_name, raw_value in self._request.headers:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        path = self._request.target.decode("latin-1").partition("?")[0]
        return HttpRequest(self._request.method.decode("latin-1"), path, headers, bytes(self._body))

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        def fire() -> None:
            self._timer = None
            action()
            self._advance()

        self._timer = asyncio.get_running_loop().call_later(seconds, fire)

    def _refuse(self, status: int, reason: str) -> None:
        """Answers what cannot become a request, and ends the connection."""
        body = json.dumps({"error": {"message": reason}}).encode("ascii")
        self._send(HttpAnswer(status, body, (("connection", "close"),)))

    def _send(self, answer: HttpAnswer) -> None:
        """Sends the answer, or as much of it as a fault lets through."""
        transport = self._transport
        if transport is None:
            return
        if answer.cut == "before":
            transport.close()
            return
        headers = [("content-type", answer.content_type), *answer.headers]
        if answer.events:
            headers.append(("transfer-encoding", "chunked"))
            parts, middle = answer.events, (len(answer.events) + 1) // 2
        else:
            headers.append(("content-length", str(len(answer.body))))
            half = len(answer.body) // 2
            parts, middle = (answer.body[:half], answer.body[half:]), 1
        if self._request is not None and self._request.method == b"HEAD":
            parts = ()
        reason = _REASONS.get(answer.status, "Unknown")
        response = h11.Response(status_code=answer.status, headers=headers, reason=reason)
        sent = self._encoded(response)
        if answer.cut != "headers":
            sent += self._encoded(*map(h11.Data, parts[:middle]))
        if answer.cut is not None:
            transport.write(sent)
            transport.close()
        elif answer.stall_s > 0:
            transport.write(sent)
            self._later(answer.stall_s, lambda: self._finish(b"", parts[middle:]))
        else:
            self._finish(sent, parts[middle:])

    def _finish(self, sent: bytes, rest: tuple[bytes, ...]) -> None:
        """Sends what is left of an answer; then the next request may come."""
        if self._transport is None:
            return
        self._transport.write(sent + self._encoded(*map(h11.Data, rest), h11.EndOfMessage()))
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._request = None
        else:
            self._transport.close()

    def _encoded(self, *events: h11.Event) -> bytes:
        return b"".join(self._http.send(event) or b"" for event in events)


_REASONS = {status.value: status.phrase for status in HTTPStatus}
