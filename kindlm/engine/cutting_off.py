"""Ends code of a user's that is cut off, also where it does not let itself be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

__all__ = ["cut_off"]

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
    for task in unending:
        # The event loop would wait for it, for ever, before it closes.
        asyncio._unregister_task(task)  # noqa: SLF001 - documented for such a use
