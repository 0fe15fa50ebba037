"""A history served to browsers: by Datasette with our plugin, on a free loopback port."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from kindlm.browse.datasette_server import make_datasette
from kindlm.browse.descriptions import START_PAGE
from kindlm.cli.commands.browse import reviews_of

_GRACE_S = 5


@contextmanager
def served(database: Path) -> Iterator[str]:
    """Serve a history from a thread, as `kindlm browse` does; yield where its pages are."""
    with serving(make_datasette(database, review=reviews_of(database)).app()) as origin:
        yield f"{origin}{START_PAGE.removesuffix('runs')}"


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an ASGI application from a thread; yield its origin."""
    # In Python 3.12.1, a server waits without end for connections that a browser dropped.
    config = uvicorn.Config(
        app, log_level="warning", lifespan="on", timeout_graceful_shutdown=_GRACE_S
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            # Whoever connects before the server accepts waits in the queue of the socket.
            port = listening.getsockname()[1]
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()
