"""The connections of HTTP agents: shared while any conversation is open, closed after the last.

Conversations share connections and nothing else; to open one for each would double what an
exchange costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from kindlm.http_client import ClientPool

__all__ = ["shared_pool"]


@dataclass(slots=True)
class _Shared:
    pool: ClientPool = field(default_factory=ClientPool)
    users: int = 0


# Connections belong to the event loop that opened them.
_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


@asynccontextmanager
async def shared_pool() -> AsyncIterator[ClientPool]:
    """Lend the pool of this event loop."""
    loop = asyncio.get_running_loop()
    shared = _shared.setdefault(loop, _Shared())
    shared.users += 1
    try:
        yield shared.pool
    finally:
        shared.users -= 1
        if not shared.users:
            # Gone before it is closed: whoever comes meanwhile gets a new one.
            del _shared[loop]
            await shared.pool.aclose()
