"""Tells which coroutines a scenario was handed and never awaited.

Python says so on standard error, and goes on: a test whose message was never sent would pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kindlm.errors import SourceLocation

T = TypeVar("T")


@dataclass(slots=True)
class Begun:
    """What was handed out: what is to be written before each, where it was, and the coroutine."""

    _handed_out: list[tuple[str, SourceLocation, Coroutine[Any, Any, Any]]] = field(
        default_factory=list
    )

    def hand_out(
        self, what: str, where: SourceLocation, work: Coroutine[Any, Any, T]
    ) -> Coroutine[Any, Any, T]:
        """Return a coroutine, and remember it."""
        self._handed_out.append((what, where, work))
        return work

    def forgotten(self) -> tuple[str, SourceLocation] | None:
        """Return the first that nobody awaited, and close all of those."""
        waiting = [
            (what, where, work)
            for what, where, work in self._handed_out
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED
        ]
        for _, _, work in waiting:
            work.close()
        return waiting[0][:2] if waiting else None
