"""A scenario that pytest can end before it ends by itself."""

from __future__ import annotations

import asyncio
from typing import Any

from kindlm.errors import ErrorCode, KindlmError
from kindlm.ports import Stage
from kindlm.suite import Script

__all__ = ["Cuttable"]


class Cuttable:
    """Runs a script until it is cut short, as a timeout of pytest does; see `suite.Script`."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._running: set[asyncio.Task[Any]] = set()
        self._cut: KindlmError | None = None

    def cut(self, why: str) -> None:
        """End all trials of it, from the thread of their event loop: they are errored."""
        self._cut = KindlmError(
            ErrorCode.ASSERTION_EVAL_ERROR,
            f"pytest ended the scenario: {why}",
            "What it had checked until then is shown.",
        )
        for task in self._running:
            task.cancel()

    async def run(self, stage: Stage) -> KindlmError | None:
        """Run the script, unless it is cut short already."""
        if (cut := self._cut) is not None:
            return cut
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            error = await self._script.run(stage)
        except asyncio.CancelledError:
            if self._cut is None:
                raise
            return self._cut
        finally:
            self._running.discard(task)
        return self._cut or error
