"""Comparing two large runs, as a user does: the whole process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Sizes
from benchmarks.processes import in_process, kindlm

__all__ = ["diff", "record"]

_RUNS = 6
"""Runs take turns with five suites: the first and the last are of the same one."""


def diff(sizes: Sizes) -> Iterator[Figure]:
    """Two runs of many executions each; all answers are worded otherwise, some fail."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before, after = in_process("diff.record", folder=name, tests=sizes.many)
        for form in ("terminal", "markdown", "json"):
            command = ("diff", before, after, "--format", form, "--fail-on", "never")
            kindlm(*command, folder=folder)
            measured = [kindlm(*command, folder=folder) for _ in range(sizes.runs)]
            what = f"kindlm diff, {sizes.many:,} executions each, {form}"
            target = "at most 2 s" if form == "terminal" else ""
            yield Figure(what, [one.wall_s for one in measured], "s", target)
            if form == "terminal":
                peaks = [one.peak_bytes for one in measured]
                yield Figure("peak memory of it", peaks, "bytes")


def record(folder: str, tests: int) -> tuple[str, str]:
    """Record runs of so many executions; returns the ids of the two to compare."""
    from benchmarks.recorded import record_history, run_name

    record_history(Path(folder) / ".kindlm" / "kindlm.db", runs=_RUNS, tests=tests)
    return run_name(0), run_name(_RUNS - 1)
