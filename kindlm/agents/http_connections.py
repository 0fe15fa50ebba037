"""The connections of HTTP agents, shared by the conversations of a run.

Conversations share connections and nothing else; to open one for each would double what an
exchange costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import httpx

__all__ = ["kept_connections", "shared_client"]


@dataclass(slots=True)
class _Shared:
    client: httpx.AsyncClient | None = None
    users: int = 0


# Connections belong to the event loop that opened them.
_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


@asynccontextmanager
async def shared_client() -> AsyncIterator[httpx.AsyncClient]:
    """Lend the client of this event loop; it is closed when nobody uses it any more."""
    async with _use() as shared:
        if shared.client is None:
            from kindlm.http_client import open_client  # runs without agents do not need it

            shared.client = open_client()
        yield shared.client


@asynccontextmanager
async def kept_connections() -> AsyncIterator[None]:
    """Keep connections for the next conversation, also while no other one goes on."""
    async with _use():
        yield


@asynccontextmanager
async def _use() -> AsyncIterator[_Shared]:
    loop = asyncio.get_running_loop()
    shared = _shared.setdefault(loop, _Shared())
    shared.users += 1
    try:
        yield shared
    finally:
        shared.users -= 1
        if not shared.users:
            # Gone before it is closed: whoever comes meanwhile gets a new one.
            del _shared[loop]
            if shared.client is not None:
                await shared.client.aclose()
