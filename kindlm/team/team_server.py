"""Serving the history of a team: `/v1` and the pages of `browse`, in one process."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import uvicorn

from kindlm.browse.history_server import (
    App,
    Message,
    Receive,
    Send,
    listen,
    only_while_there,
)
from kindlm.errors import Err
from kindlm.team.connections import (
    KEEP_ALIVE_S,
    LONGEST_HEAD,
    guarded_protocol,
    most_connections,
    unambiguous,
)
from kindlm.team.history_api import PREFIX, HistoryApi

_GRACE_S = 5
"""Seconds that requests may take to end when the server is stopped."""

_BACKLOG = 1024


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


def serve(
    app: App, listening: socket.socket, on_ready: Callable[[], None], *, lifespan: bool = True
) -> None:
    """Serve until Ctrl-C or SIGTERM, which both end in `KeyboardInterrupt`.

    `on_ready` is called once requests are answered.
    """
    # The server raises the signal that stopped it again, once it has stopped.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _Server(_config(app, lifespan=lifespan), on_ready).run(sockets=[listening])
    finally:
        signal.signal(signal.SIGTERM, before)


class RunningServer:
    """Serves an application from a thread, as long as the context lasts.

    Raises:
        OSError: It cannot listen there.

    Attributes:
        url: Where it answers, without a slash at its end.
        protocol: Of its connections.
    """

    def __init__(self, app: App, host: str = "127.0.0.1", port: int = 0) -> None:
        listening = listen(host, port)
        if isinstance(listening, Err):
            raise OSError(listening.error.message)
        self._listening = listening.value
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._listening.getsockname()[1]}"
        self._ready = threading.Event()
        config = _config(app, lifespan=False)
        self.protocol = config.http
        self._server = _Server(config, self._ready.set)
        self._thread = threading.Thread(target=self._serve, name="kindlm-server", daemon=True)

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


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def _config(app: App, *, lifespan: bool) -> uvicorn.Config:
    return uvicorn.Config(
        unambiguous(app),
        http=guarded_protocol(most_connections()),
        ws="none",
        loop="asyncio",
        lifespan="on" if lifespan else "off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        h11_max_incomplete_event_size=LONGEST_HEAD,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )
