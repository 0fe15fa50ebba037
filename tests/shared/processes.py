"""Programs that a test starts: time that passes once they run, and whether they have ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

_PASSING_S = 10_000.0


@asynccontextmanager
async def time_passes_after(hangs: Callable[[], object] | None) -> AsyncIterator[None]:
    """Let hours pass for the event loop as soon as something hangs.

    So what waits for it runs out of time at once, and never before it has come to where it hangs.
    Without anything that hangs, time passes as always.
    """

    async def pass_time(hangs: Callable[[], object]) -> None:
        while not hangs():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)  # what it said before has arrived
        loop = asyncio.get_running_loop()
        usual = loop.time
        loop.time = lambda: usual() + _PASSING_S

    passing = asyncio.create_task(pass_time(hangs)) if hangs else None
    try:
        yield
    finally:
        if passing:
            passing.cancel()


def is_written(file: Path) -> bool:
    """Tell whether a program has written a file."""
    return file.exists() and file.stat().st_size > 0


def started_pids(folder: Path) -> list[int]:
    """Return the ids that a program has written into the file `pids`."""
    return [int(pid) for pid in (folder / "pids").read_text().split()]


def assert_ended(pids: Sequence[int]) -> None:
    """Fail unless the processes end: a kill is certain, and takes a moment."""
    deadline = time.monotonic() + 20
    while any(map(_is_alive, pids)):
        assert time.monotonic() < deadline, "a process was left running"
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and is not collected yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
