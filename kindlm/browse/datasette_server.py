"""Serves a history with Datasette from this process.

`kindlm browse` uses it, and so does the server of a team for its pages.

A web site can let its own name point to 127.0.0.1 once its page is open ("DNS rebinding"), and a
browser then takes what is served here for a part of that site. Requests that browsers send on its
behalf still carry its name: `only_for` refuses them. A process can read on in a file that was
deleted, moved or replaced, and would show an old state: `only_while_there` refuses that.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sqlite3
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import uvicorn

from kindlm.browse.descriptions import DATABASE, instance_metadata
from kindlm.errors import Err, Ok, Result, broken

if TYPE_CHECKING:
    from datasette.app import Datasette  # type: ignore[import-untyped]

    from kindlm.browse.routes import Reviewer

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})

_REFUSAL = "This server answers to localhost, 127.0.0.1 and [::1] only.\n"


def answers_to(host: str, names: Collection[str]) -> bool:
    """Tell whether a `Host` is one of some names, at whatever port; letters of either case."""
    name, colon, port = host.rpartition(":")
    if not colon or "]" in port:
        name, port = host, ""
    return name.lower() in names and (not port or (port.isascii() and port.isdigit()))


def only_for(names: Collection[str], app: App) -> App:
    """Return an ASGI application that refuses requests to other names."""

    async def guarded(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            # None, or two of which each could be meant.
            host = str(hosts[0].decode("latin-1")) if len(hosts) == 1 else ""
            if not answers_to(host, names):
                # Misdirected Request: what it asks for is not served here.
                await _refuse(send, 421, _REFUSAL)
                return
        await app(scope, receive, send)

    return guarded


async def _refuse(send: Send, status: int, told: str) -> None:
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    body = told.encode("utf-8", "backslashreplace")
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def only_while_there(database: Path, app: App, command: str = "kindlm browse") -> App:
    """Return an ASGI application that answers as long as the file is the one that it is now."""
    opened = _identity(database)
    said = f"{database} was moved, deleted or replaced. Start {command} again.\n"

    async def answered(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or _identity(database) == opened:
            await app(scope, receive, send)
            return
        await _refuse(send, 503, said)

    return answered


def _identity(database: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(database)  # noqa: PTH116 - asked for with each request
    except OSError:
        return None
    return found.st_dev, found.st_ino


_USUAL_PORT = 8001
_GRACE_S = 2
_SQL_LIMIT_MS = 10_000
"""A question about a long history may take longer than a public site would allow.

To suggest facets, all rows would be counted for each column.
"""


class _Path(str):
    """The path of a file, which Datasette writes into an URI for SQLite as it is.

    There `?` and `#` would end it, and with it `mode=ro`: another file would be made and opened.
    """

    __slots__ = ()

    def __format__(self, _: str) -> str:
        return quote(os.fsencode(self))


def listen(host: str, port: int | None) -> Result[socket.socket]:
    """Return a listening socket; without a port the usual one, or a free one if that is taken."""
    candidates = [_USUAL_PORT, 0] if port is None else [port]
    failure: OSError | None = None
    for candidate in candidates:
        try:
            return Ok(_listening(host, candidate))
        except OSError as error:
            failure = error
    assert failure is not None
    place = host if port is None else f"{host}:{port}"
    hint = "Choose another --port, or leave it out to get a free one."
    is_unknown = isinstance(failure, socket.gaierror)
    # What Python says of a failure to bind repeats the address.
    why = failure.strerror if is_unknown else os.strerror(failure.errno or 0)
    # No other port helps if the host does not exist, or is not this machine.
    if is_unknown or failure.errno == errno.EADDRNOTAVAIL:
        hint = "Choose a --host that is an address of this machine, or leave it out for 127.0.0.1."
    return Err(broken(f"kindlm cannot listen on {place}: {why}.", hint))


def make_datasette(
    database: Path,
    regression_threshold: float | None = None,
    review: Reviewer | None = None,
) -> Datasette:
    """Return a Datasette on the file, which sees what is appended while it runs.

    `regression_threshold` is that of the project, None for the default. `review` says
    who may review on pages; without it, they are read-only.
    """
    from datasette.app import Datasette
    from datasette.database import Database  # type: ignore[import-untyped]
    from datasette.plugins import pm  # type: ignore[import-untyped]

    from kindlm.browse import plugin
    from kindlm.browse.routes import reviewers

    # Installed, it is found by its entry point; Datasette may be configured not to look.
    if not pm.is_registered(plugin):
        pm.register(plugin, name="kindlm")
    # With rich, Datasette prints all variables at each error, also of a question that is not SQL:
    # texts of the history would be in the terminal. And it fails where no page has the address.
    # Asked for as a plugin: imported before the others, it would be registered half loaded.
    pm.get_plugin("datasette.handle_exception").rich = None
    settings = {
        "sql_time_limit_ms": _SQL_LIMIT_MS,
        "suggest_facets": False,
        "allow_download": False,
    }
    datasette = Datasette(settings=settings, metadata=instance_metadata(regression_threshold))
    found = Database(datasette, path=_Path(database), is_mutable=_can_be_followed(database))
    datasette.add_database(found, name=DATABASE)
    if review is not None:
        reviewers[datasette] = review
    return datasette


def serve(
    datasette: Datasette,
    listening: socket.socket,
    on_ready: Callable[[], None],
    names: Collection[str] | None = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM, which both end in `KeyboardInterrupt`.

    `on_ready` is called once pages can be asked for. `names` are the hosts that are answered to,
    None for any.
    """
    app = only_while_there(Path(datasette.databases[DATABASE].path), datasette.app())
    config = uvicorn.Config(
        app if names is None else only_for(names, app),
        log_level="warning",
        lifespan="on",
        timeout_graceful_shutdown=_GRACE_S,
    )
    run_server(config, listening, on_ready)


class Server(uvicorn.Server):
    """Calls `on_ready` once requests are answered."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def run_server(
    config: uvicorn.Config, listening: socket.socket, on_ready: Callable[[], None]
) -> None:
    """Serve until Ctrl-C or SIGTERM, which both end in `KeyboardInterrupt`."""
    # The server raises the signal that stopped it again, once it has stopped.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        Server(config, on_ready).run(sockets=[listening])
    finally:
        signal.signal(signal.SIGTERM, before)


def _can_be_followed(database: Path) -> bool:
    """Tell whether what is appended to the file can be seen: that takes a file beside it.

    A folder that is read-only has no such file, and no run is recorded there. So the file is read
    as one that never changes, which Datasette calls immutable; it looks into no write-ahead log.
    """
    address = f"{database.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            return False
    return True


def _listening(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    # `::` stands for all addresses, those of IPv4, too.
    both = family is socket.AF_INET6 and socket.has_dualstack_ipv6()
    return socket.create_server(address, family=family, dualstack_ipv6=both)
