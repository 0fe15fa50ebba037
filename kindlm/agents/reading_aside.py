"""Reads long replies beside the event loop, which would stand still for all other executions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kindlm.agents.user_code import in_thread

__all__ = ["read_aside"]

T = TypeVar("T")

# Shorter ones are read in less time than a thread takes to start and end.
_LONG = 50_000


async def read_aside(text: str, read: Callable[[], T]) -> T:
    """Return what `read` makes of a text, or raise what it raises."""
    if len(text) <= _LONG:
        return read()
    result: T = await in_thread(read)
    return result
