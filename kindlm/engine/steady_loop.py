"""The event loop of a run, which goes on if code under test stops the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from time import monotonic
from typing import Any


class _SteadyLoop(asyncio.SelectorEventLoop):
    # Freezegun and the like replace the names of modules, and not the attributes of classes.
    time = staticmethod(monotonic)


def run_steadily(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in an event loop of its own, whose clock no test or fixture can stop."""
    with asyncio.Runner(loop_factory=_SteadyLoop) as runner:
        runner.run(work)
