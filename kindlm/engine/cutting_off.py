"""Ends code of a user's that is cut off, also where it does not let itself be cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

__all__ = ["cut_off", "leaving_nothing"]

T = TypeVar("T")

_GRACE_S = 2.0
"""What is cut off may close what it has opened; then nobody waits for it any more."""


async def cut_off(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended; those that take longer are left behind."""
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if not left:
        return
    _, unending = await asyncio.wait(left, timeout=_GRACE_S)
    if not unending:
        return
    for task in unending:
        # The event loop would wait for it, for ever, before it closes.
        asyncio._unregister_task(task)  # noqa: SLF001 - documented for such a use
    name = "kindlm-unending"
    threading.Thread(target=_hold, args=(unending,), name=name, daemon=True).start()


def _hold(_unending: Iterable[asyncio.Task[Any]]) -> None:
    """Hold tasks until the process is gone.

    Python closes a coroutine that nobody holds any more: it raises in there, and waits. What
    catches that, too, and tries again, would never end, as nothing can be awaited there.
    """
    threading.Event().wait()


async def leaving_nothing(work: Awaitable[T]) -> T:
    """Return what the whole work of an event loop gives, and end the tasks that it left behind.

    Functions of tests may start some and not wait for them.
    """
    try:
        return await work
    finally:
        this = asyncio.current_task()
        await cut_off(task for task in asyncio.all_tasks() if task is not this)
