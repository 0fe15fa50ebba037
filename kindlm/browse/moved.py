"""A history that is not where it was any more: nothing is served of what is still open of it.

What a process has opened it can read on after the file was deleted, moved away or replaced by
another. Its pages would show what nobody else sees, and nothing of what is recorded from then on.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

__all__ = ["only_while_there"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def only_while_there(database: Path, app: App) -> App:
    """Return an ASGI application that answers as long as the file is the one that it is now."""
    opened = _identity(database)
    said = f"{database} was moved, deleted or replaced. Start kindlm browse again.\n"
    refusal = said.encode("utf-8", "backslashreplace")

    async def answered(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or _identity(database) == opened:
            await app(scope, receive, send)
            return
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": refusal})

    return answered


def _identity(database: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(database)  # noqa: PTH116 - asked for with each request
    except OSError:
        return None
    return found.st_dev, found.st_ino
