"""Connections of a history server: none that is idle or slow keeps others from being answered.

A request has to arrive, and an answer to be read, within deadlines; a body must not be slower than
a bad line. Of more connections than there may be, the one goes that has been of no use for longest.
"""

from __future__ import annotations

import asyncio
import resource
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from kindlm.browse.history_server import App, Message, Receive, Send
from kindlm.team.protocol import LONGEST_BODY

HEADERS_S = 10.0
"""Seconds until the head of a request is complete, from the connection or the answer before."""

SLOWEST = 10_000
"""Bytes of a body that have to come in `CHECK_S` seconds."""

CHECK_S = 10.0
"""Seconds, also until an answer that fills all buffers has to be read on."""

BODY_S = 120.0
"""Seconds until a body is complete."""

KEEP_ALIVE_S = 8
"""Seconds without a request until a connection is closed: fewer than until its head is due."""

LONGEST_HEAD = 32 * 1024

_FRAMES = {b"content-length", b"transfer-encoding"}

_MOST = 4_000
_OTHER_FILES = 200
"""Descriptors for all else: the history, temporary files."""


def most_connections() -> int:
    """Return how many connections there may be, after raising the limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return _MOST if soft == resource.RLIM_INFINITY else max(16, min(_MOST, soft - _OTHER_FILES))


def unambiguous(app: App) -> App:
    """Return an application that answers no request whose length can be read in two ways.

    A proxy may take its end for another place, and with it what follows for another request.
    """

    async def answered(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and {name for name, _ in scope["headers"]} >= _FRAMES:
            headers = [(b"connection", b"close"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 400, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        await app(scope, receive, send)

    return answered


def guarded_protocol(most: int) -> type[H11Protocol]:
    """Return a protocol of which at most so many connections are open."""

    class Guarded(_Guarded):
        open_ones: ClassVar[dict[_Guarded, None]] = {}
        most_open: ClassVar[int] = most

    return Guarded


class _Guarded(H11Protocol):
    open_ones: ClassVar[dict[_Guarded, None]]
    most_open: ClassVar[int]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline: asyncio.TimerHandle | None = None
        self._waits_for = ""
        self._received = 0
        self._surplus = 0
        self._reading: asyncio.TimerHandle | None = None
        self.open_ones[self] = None
        if len(self.open_ones) > self.most_open:
            idle = (each for each in self.open_ones if not each.is_answered())
            oldest = next(idle, next(iter(self.open_ones)))
            # Now: it is lost only later, and more may come before.
            del self.open_ones[oldest]
            oldest.transport.abort()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_ones.pop(self, None)
        self._set_deadline("", 0)
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self.conn.our_state is h11.DONE:
            # The answer was given before all of the body was here: the rest is read, so that the
            # client gets to see the answer, but not without end.
            self._surplus += len(data)
            if self._surplus > 2 * LONGEST_BODY:
                self.transport.abort()
                return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        self._surplus = 0
        # Of use: it goes after all that were of none since.
        if self in self.open_ones:
            self.open_ones[self] = self.open_ones.pop(self)
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._reading is None:
            self._reading = self.loop.call_later(CHECK_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def is_answered(self) -> bool:
        """Return whether the request is all here, and its answer is not all sent."""
        cycle: RequestResponseCycle | None = self.cycle  # until the first request
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def _watch(self) -> None:
        """Set the deadline of what the client has to do next."""
        state = self.conn.their_state
        if state is h11.IDLE:
            self._set_deadline("head", HEADERS_S)
        elif state is h11.SEND_BODY:
            self._set_deadline("body", BODY_S)
        else:
            self._set_deadline("", 0)

    def _set_deadline(self, waits_for: str, seconds: float) -> None:
        if waits_for == self._waits_for:
            return
        self._waits_for = waits_for
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if waits_for:
            self._received = 0
            ends = self.loop.time() + seconds
            self._deadline = self.loop.call_later(min(CHECK_S, seconds), self._check, ends)

    def _check(self, ends: float) -> None:
        slow = self._waits_for == "body" and self._received < SLOWEST and not self.flow.read_paused
        if slow or self.loop.time() >= ends:
            self.transport.abort()
            return
        self._received = 0
        left = ends - self.loop.time()
        self._deadline = self.loop.call_later(min(CHECK_S, left), self._check, ends)
