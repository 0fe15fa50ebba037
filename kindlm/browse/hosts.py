"""Which `Host` a server on this machine answers to: no page of another name may read from it.

A web site can let its own name point to 127.0.0.1 once its page is open ("DNS rebinding"), and a
browser then takes what is served here for a part of that site. Requests that browsers send on its
behalf still carry its name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
App = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})

_REFUSAL = b"This server answers to localhost, 127.0.0.1 and [::1] only.\n"


def answers_to(host: str, names: Collection[str]) -> bool:
    """Tell whether a `Host` is one of some names, at whatever port; letters of either case."""
    name, colon, port = host.rpartition(":")
    if not colon or "]" in port:
        name, port = host, ""
    return name.lower() in names and (not port or (port.isascii() and port.isdigit()))


def only_for(names: Collection[str], app: App) -> App:
    """Return an ASGI application that refuses requests to other names."""

    async def guarded(
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        if scope["type"] != "lifespan" and not answers_to(_host(scope), names):
            # Misdirected Request: what it asks for is not served here.
            headers = [(b"content-type", b"text/plain"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 421, "headers": headers})
            await send({"type": "http.response.body", "body": _REFUSAL})
            return
        await app(scope, receive, send)

    return guarded


def _host(scope: Message) -> str:
    found = [value for name, value in scope["headers"] if name == b"host"]
    # None, or two of which each could be meant.
    return str(found[0].decode("latin-1")) if len(found) == 1 else ""
