"""Serves the history of a team: `/v1` and the pages of `browse`, in one process.

Requests must arrive, and answers be read, within deadlines. At the limit of connections, a new one
replaces the one that has been useless for longest.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from kindlm.browse.datasette_server import (
    App,
    Message,
    Receive,
    Send,
    Server,
    listen,
    only_while_there,
    run_server,
)
from kindlm.errors import Err
from kindlm.team.history_api import PREFIX, HistoryApi

_GRACE_S = 5
"""Seconds that requests may take to end when the server is stopped."""

_BACKLOG = 1024

HEADERS_S = 10.0
"""Seconds until the head of a request is complete, from the connection or the answer before."""

BODY_S = 120.0
"""Seconds until a body is complete, and for what still comes of it after the answer."""

READ_S = 10.0
"""Seconds until an answer that fills all buffers is read on."""

_KEEP_ALIVE_S = 8
"""Seconds without a request until a connection is closed: fewer than until its head is due."""

_LONGEST_HEAD = 32 * 1024

_FRAMES = {b"content-length", b"transfer-encoding"}

_MOST = 4_000
_OTHER_FILES = 200
"""Descriptors for all else: the history, temporary files."""


def make_app(api: HistoryApi, pages: App, database: Path) -> App:
    """Return the application of a team's server.

    Args:
        api: Answers `/v1/…`.
        pages: Answers all else.
        database: The history: nothing is answered once its file is another one.
    """

    async def routed(scope: Message, receive: Receive, send: Send) -> None:
        is_api = scope["type"] == "http" and f"{scope['path']}/".startswith(PREFIX)
        await (api if is_api else pages)(scope, receive, send)

    return only_while_there(database, routed, "kindlm serve-history")


def serve(app: App, listening: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until Ctrl-C or SIGTERM, which both end in `KeyboardInterrupt`.

    `on_ready` is called once requests are answered.
    """
    run_server(_config(app, lifespan=True), listening, on_ready)


class RunningServer:
    """Serves an application from a thread, as long as the context lasts.

    Raises:
        OSError: It cannot listen there.

    Attributes:
        url: Where it answers, without a slash at its end.
    """

    def __init__(self, app: App, host: str = "127.0.0.1", port: int = 0) -> None:
        listening = listen(host, port)
        if isinstance(listening, Err):
            raise OSError(listening.error.message)
        self._listening = listening.value
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._listening.getsockname()[1]}"
        self._ready = threading.Event()
        self._server = Server(_config(app, lifespan=False), self._ready.set)
        self._thread = threading.Thread(target=self._serve, name="kindlm-server", daemon=True)

    @property
    def open_connections(self) -> int:
        """How many connections are open."""
        return len(self._server.server_state.connections)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.should_exit = True
        self._thread.join()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._listening])
        finally:
            self._ready.set()


def _config(app: App, *, lifespan: bool) -> uvicorn.Config:
    class OfOneServer(_Guarded):
        open_ones: ClassVar[dict[_Guarded, None]] = {}
        most_open: ClassVar[int] = _most_connections()

    return uvicorn.Config(
        _unambiguous(app),
        http=OfOneServer,
        ws="none",
        loop="asyncio",
        lifespan="on" if lifespan else "off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        h11_max_incomplete_event_size=_LONGEST_HEAD,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )


def _most_connections() -> int:
    """Return how many connections there may be, after raising the limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return _MOST if soft == resource.RLIM_INFINITY else max(16, min(_MOST, soft - _OTHER_FILES))


def _unambiguous(app: App) -> App:
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


class _Guarded(H11Protocol):
    """A connection that is closed once its client takes too long.

    Attributes:
        open_ones: Those of the server; the first has been of no use for longest.
        most_open: How many there may be.
    """

    open_ones: ClassVar[dict[_Guarded, None]]
    most_open: ClassVar[int]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline: asyncio.TimerHandle | None = None
        self._waits_for = ""
        self._reading: asyncio.TimerHandle | None = None
        self.open_ones[self] = None
        if len(self.open_ones) > self.most_open:
            # At least this one is not being answered.
            oldest = next(each for each in self.open_ones if not each.is_answered())
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
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        if self in self.open_ones:
            # It was of use: it becomes the last.
            self.open_ones[self] = self.open_ones.pop(self)
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._reading is None:
            self._reading = self.loop.call_later(READ_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def is_answered(self) -> bool:
        """Return whether the request is all here, and its answer is not all sent."""
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request
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
            self._deadline = self.loop.call_later(seconds, self.transport.abort)
