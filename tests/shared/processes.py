"""Whether processes that a test knows by their ids have ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["LONG_ENOUGH_TO_START_S", "assert_ended", "started_pids"]

LONG_ENOUGH_TO_START_S: Final = 5.0
"""In which a Python or two start on a busy machine, and do their first things."""


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
