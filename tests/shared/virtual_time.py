"""An event loop whose time passes at once: what waits for minutes is tested in milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Does not wait for the next timer, but says that its time has come."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing will happen")
        self.now += max(0.0, timeout)
        # The loop's own pipe, which wakes it while it waits, is always there.
        return super().select(0) if len(self.get_map()) > 1 else []


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, selector: _Selector) -> None:
        super().__init__(selector)
        self._virtual = selector

    def time(self) -> float:
        return self._virtual.now


class LoopClock:
    """The time of the running loop; stands for `engine.stop.Clock`."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_at_once(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a loop that starts at second 0 and waits for nothing."""
    with asyncio.Runner(loop_factory=lambda: _Loop(_Selector())) as runner:
        return runner.run(main)
