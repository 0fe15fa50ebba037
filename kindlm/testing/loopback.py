"""The loopback server: listens on a loopback address and answers from a script."""

from __future__ import annotations

import asyncio
import ipaddress
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Self

from kindlm.testing.http1 import listening
from kindlm.testing.node import Node, ScriptError
from kindlm.testing.provider_routes import App, LoggedRequest
from kindlm.testing.script import Source, load_script, read_faults


def _require_loopback(host: str) -> str:
    """Return the address; raises `ScriptError` if it is not a loopback address."""
    address = "127.0.0.1" if host == "localhost" else host
    with suppress(ValueError):
        if ipaddress.ip_address(address).is_loopback:
            return address
    raise ScriptError(f"{host}: only loopback addresses are served, such as 127.0.0.1")


class LoopbackServer:
    """The server in its own thread, for tests and for the demo.

    Example:
        with LoopbackServer("support") as server:
            client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any")

    Args:
        script: a script, its file, the name of a built-in script, or its data.
        host: a loopback address.
        port: 0 for any free port.
    """

    def __init__(self, script: Source, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._host = _require_loopback(host)
        self._port = port
        self._app = App(load_script(script))
        self._started = Future[tuple[int, Callable[[], object]]]()
        self._thread = threading.Thread(target=self._run, name="kindlm-loopback", daemon=True)

    def __enter__(self) -> Self:
        """Start listening; raises `OSError` if the address cannot be used."""
        self._thread.start()
        self._port, self._stop = self._started.result()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._thread.join()

    @property
    def url(self) -> str:
        """The URL of the server, without a path."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    @property
    def port(self) -> int:
        """The port of the server."""
        return self._port

    @property
    def requests(self) -> tuple[LoggedRequest, ...]:
        """All requests to provider routes so far, in order of arrival."""
        return tuple(self._app.requests)

    def use_faults(self, faults: Sequence[Mapping[str, Any]]) -> None:
        """Replace all faults, from the next request on."""
        self._app.use_faults(read_faults(Node([dict(fault) for fault in faults], "faults")))

    def use_script(self, script: Source) -> None:
        """Play another script, from the next request on."""
        self._app.use_script(load_script(script))

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._started.set_exception(error)

    async def _serve(self) -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        async with listening(self._app.handle, self._host, self._port) as port:
            self._started.set_result((port, lambda: loop.call_soon_threadsafe(over.set)))
            await over.wait()
