"""Serves the history of a team: `/v1` and the pages of `browse`, in one process.

Requests must arrive, and answers be read, within deadlines. At the limit of connections, a new one
replaces the one that has made no request for the longest time.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
from pathlib import Path
from typing import Self

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from kindlm.browse.datasette_server import App, Message, Receive, Send, guarded, listen
from kindlm.errors import Err
from kindlm.team.history_api import PREFIX, HistoryApi

_GRACE_S = 5
"""Seconds that requests may take to end when the server is stopped."""

_BACKLOG = 1024

HEADERS_S = 10.0
"""Seconds until the head of a request must be complete, after the connection or last answer."""

BODY_S = 120.0
"""Seconds until a body must be complete."""

READ_S = 10.0
"""Seconds until a client must read on when an answer fills all buffers."""

_KEEP_ALIVE_S = 8
"""Seconds without a request after which a connection is closed; fewer than `HEADERS_S`."""

_LONGEST_HEAD = 32 * 1024

_FRAMES = {b"content-length", b"transfer-encoding"}

_MOST = 4_000
_OTHER_FILES = 200
"""File descriptors for everything else: the history, temporary files."""


def make_app(api: HistoryApi, pages: App, database: Path) -> App:
    """Return the application of a team's server; `pages` answers everything but `/v1/…`.

    Requests are refused once the file of the history, `database`, was replaced.
    """

    async def routed(scope: Message, receive: Receive, send: Send) -> None:
        is_api = scope["type"] == "http" and f"{scope['path']}/".startswith(PREFIX)
        await (api if is_api else pages)(scope, receive, send)

    return guarded(routed, database, command="kindlm serve-history")


def serve(app: App, listening: socket.socket) -> None:
    """Serve until a signal, which uvicorn raises again after its shutdown."""
    uvicorn.Server(_config(app, lifespan=True)).run(sockets=[listening])


class RunningServer:
    """Serves an application at `url`, from a thread, while the context is open.

    Raises:
        OSError: It cannot listen at this address.
    """

    def __init__(self, app: App, host: str = "127.0.0.1", port: int = 0) -> None:
        listening = listen(host, port)
        if isinstance(listening, Err):
            raise OSError(listening.error.message)
        self._listening = listening.value
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._listening.getsockname()[1]}"
        self._server = uvicorn.Server(_config(app, lifespan=False))
        self._thread = threading.Thread(target=self._serve, name="kindlm-server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.should_exit = True
        self._thread.join()

    def _serve(self) -> None:
        with self._listening:
            self._server.run(sockets=[self._listening])


def _config(app: App, *, lifespan: bool) -> uvicorn.Config:
    return uvicorn.Config(
        _unambiguous(app),
        http=_Guarded,
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
    """Return the limit of connections that the limit of open files allows."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if files == resource.RLIM_INFINITY else max(16, min(_MOST, files - _OTHER_FILES))


def _unambiguous(app: App) -> App:
    """Return an application that refuses requests with two lengths (request smuggling, RFC 9112).

    A proxy could see the end of such a request elsewhere, and take the rest for another request.
    """

    async def answered(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and {name for name, _ in scope["headers"]} >= _FRAMES:
            headers = [(b"connection", b"close"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 400, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        await app(scope, receive, send)

    return answered


_open: dict[_Guarded, None] = {}
"""The open connections of this process, the one longest without an answer first."""


class _Guarded(H11Protocol):
    """A connection that is closed if its client takes too long."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._step: tuple[str, float] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        _open[self] = None
        if len(_open) > _most_connections():
            # There is one: this new connection has no request yet.
            oldest = next(each for each in _open if not each.is_answered())
            # Removed at once, since `connection_lost` comes later than further connections.
            del _open[oldest]
            oldest.transport.abort()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        _open.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        if self in _open:
            # Moved to the end.
            _open[self] = _open.pop(self)
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    def is_answered(self) -> bool:
        """Return whether a request has arrived completely, and its answer is not sent yet."""
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def _watch(self) -> None:
        """Set the deadline of the client's next step."""
        steps = {h11.IDLE: ("head", HEADERS_S), h11.SEND_BODY: ("body", BODY_S)}
        step = ("read", READ_S) if self.flow.write_paused else steps.get(self.conn.their_state)
        if step != self._step:
            self._step = step
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = step and self.loop.call_later(step[1], self.transport.abort)
