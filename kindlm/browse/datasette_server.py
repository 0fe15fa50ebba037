"""Serves a history with Datasette from this process, for `kindlm browse` and a team's server.

`guarded` prevents DNS rebinding: a web site may resolve its own name to 127.0.0.1, so that a
browser takes this server for that site. Such requests still have its name in `Host`. It also
prevents showing an old state: an open file stays readable after it was deleted, moved or replaced.
"""

from __future__ import annotations

import os
import re
import socket
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from kindlm.browse.descriptions import DATABASE, instance_metadata
from kindlm.errors import Err, Ok, Result, broken
from kindlm_store import open_reader

if TYPE_CHECKING:
    from datasette.app import Datasette  # type: ignore[import-untyped]

    from kindlm.browse.routes import Reviewer

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})

_PORT = re.compile(r":\d*\Z", re.ASCII)

_REFUSAL = "This server answers to localhost, 127.0.0.1 and [::1] only.\n"


def guarded(
    app: App, database: Path, names: Collection[str] | None = None, command: str = "kindlm browse"
) -> App:
    """Return an ASGI application that refuses requests once the file was moved or replaced.

    If `names` are given, it also refuses requests to other names.
    """
    opened = _identity(database)
    gone = f"{database} was moved, deleted or replaced. Start {command} again.\n"

    async def respond(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
        elif names is not None and not answers_to(scope["headers"], names):
            await _refuse(send, 421, _REFUSAL)  # Misdirected Request
        elif _identity(database) != opened:
            await _refuse(send, 503, gone)
        else:
            await app(scope, receive, send)

    return respond


def answers_to(headers: Iterable[tuple[bytes, bytes]], names: Collection[str]) -> bool:
    """Return whether a request has exactly one `Host`, with one of the names and any port."""
    hosts = [value.decode("latin-1").lower() for name, value in headers if name == b"host"]
    return len(hosts) == 1 and _PORT.sub("", hosts[0]) in names


async def _refuse(send: Send, status: int, message: str) -> None:
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    body = message.encode("utf-8", "backslashreplace")
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _identity(database: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(database)  # noqa: PTH116 - faster, and needed for each request
    except OSError:
        return None
    return found.st_dev, found.st_ino


_USUAL_PORT = 8001
_GRACE_S = 2
_SQL_LIMIT_MS = 10_000
"""Datasette's default is for public sites; a query about a long history may take longer."""


def listen(host: str, port: int | None) -> Result[socket.socket]:
    """Return a listening socket. Without a port, use the usual one, or else any free port."""
    failure: OSError
    for tried in (_USUAL_PORT, 0) if port is None else (port,):
        try:
            family, _, _, _, address = socket.getaddrinfo(host, tried, type=socket.SOCK_STREAM)[0]
            # `::` stands for all addresses, including those of IPv4.
            both = family is socket.AF_INET6 and socket.has_dualstack_ipv6()
            return Ok(socket.create_server(address, family=family, dualstack_ipv6=both))
        except UnicodeError:  # a part of the name is empty or too long
            failure = socket.gaierror(socket.EAI_NONAME, "Not a valid host name")
        except OSError as error:
            failure = error
    place = host if port is None else f"{host}:{port}"
    # Python's message about `bind` would repeat the address.
    is_unknown = isinstance(failure, socket.gaierror)
    why = failure.strerror if is_unknown else os.strerror(failure.errno or 0)
    return Err(
        broken(
            f"kindlm cannot listen on {place}: {why}.",
            "Choose another --port, 0 for a free one, or a --host that is an address of this"
            " machine.",
        )
    )


def make_datasette(
    database: Path,
    regression_threshold: float | None = None,
    review: Reviewer | None = None,
) -> Datasette:
    """Return a Datasette for the history; it shows events that are appended later.

    `regression_threshold` is that of the project, None for the default. Without `review`, the pages
    are read-only.
    """
    from datasette.app import Datasette
    from datasette.database import Database  # type: ignore[import-untyped]
    from datasette.plugins import pm  # type: ignore[import-untyped]

    from kindlm.browse import plugin
    from kindlm.browse.routes import reviewers

    # Datasette may be configured not to load plugins by their entry points.
    if not pm.is_registered(plugin):
        pm.register(plugin, name="kindlm")
    # With rich, Datasette prints all variables at each error, including recorded text, and fails
    # for unknown paths. A direct import of the module would register the plugin half loaded.
    pm.get_plugin("datasette.handle_exception").rich = None
    settings = {
        "sql_time_limit_ms": _SQL_LIMIT_MS,
        "suggest_facets": False,  # it would count all rows for each column
        "allow_download": False,
    }
    datasette = Datasette(settings=settings, metadata=instance_metadata(regression_threshold))

    class HistoryDatabase(Database):  # type: ignore[misc]
        """Unlike Datasette's own, it opens files of any name, also in a read-only folder."""

        def connect(self) -> sqlite3.Connection:
            connection = open_reader(database)
            self._all_file_connections.append(connection)
            return connection

    datasette.add_database(HistoryDatabase(datasette, path=str(database)), name=DATABASE)
    datasette.remove_database("_memory")  # Datasette adds it if it gets no files
    if review is not None:
        reviewers[datasette] = review
    return datasette


def serve(datasette: Datasette, listening: socket.socket, names: Collection[str] | None) -> None:
    """Serve requests for `names`, None for all, until a signal, which uvicorn raises again."""
    config = uvicorn.Config(
        guarded(datasette.app(), Path(datasette.databases[DATABASE].path), names),
        log_level="warning",
        lifespan="on",
        timeout_graceful_shutdown=_GRACE_S,
    )
    uvicorn.Server(config).run(sockets=[listening])
