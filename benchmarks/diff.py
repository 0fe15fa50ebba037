"""Comparing two large runs with `kindlm diff`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Sizes
from benchmarks.processes import Measured, in_process, kindlm

_RUNS = 6
"""Runs alternate between five suites, so the first and the last are of the same one."""


def diff(sizes: Sizes) -> Iterator[Figure]:
    """Yield time and memory for two runs whose answers all differ, and of which some fail."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = in_process("diff.record", folder=name, tests=sizes.many)
        for form in ("terminal", "markdown", "json"):
            measured = _measured(sizes, folder, runs, form)
            what = f"kindlm diff, {sizes.many:,} executions each, {form}"
            target = "at most 2 s" if form == "terminal" else ""
            yield Figure(what, [one.wall_s for one in measured], "s", target)
            if form == "terminal":
                peaks = [one.peak_bytes for one in measured]
                yield Figure("peak memory of it", peaks, "bytes")
    with tempfile.TemporaryDirectory() as name:
        runs = in_process("diff.record", folder=name, tests=sizes.many, outage=True)
        measured = _measured(sizes, Path(name), runs, "terminal")
        what = f"kindlm diff, {sizes.many:,} executions each, all failed after"
        yield Figure(what, [one.wall_s for one in measured], "s", "at most 2 s")
    yield from _retried(sizes)


def _retried(sizes: Sizes) -> Iterator[Figure]:
    """Yield the time for runs with one in ten executions retried, compared with none."""
    with tempfile.TemporaryDirectory() as plain, tempfile.TemporaryDirectory() as again:
        runs = in_process("diff.record", folder=plain, tests=sizes.many)
        in_process("diff.record", folder=again, tests=sizes.many, retried=True)
        taken: list[tuple[float, float]] = []
        for _ in range(sizes.runs + 1):
            one, other = (
                kindlm("diff", *runs, "--fail-on", "never", folder=Path(folder)).wall_s
                for folder in (plain, again)
            )
            taken.append((one, other))
    what = f"kindlm diff, {sizes.many:,} executions each, one in ten run again"
    yield Figure(what, [other for _, other in taken[1:]], "s")
    yield Figure("that to none run again", [other / one for one, other in taken[1:]], "×")


def record(
    folder: str, tests: int, *, outage: bool = False, retried: bool = False
) -> tuple[str, str]:
    """Record runs of `tests` executions; return the ids of the two to compare."""
    from benchmarks.recorded import record_history, run_name

    database = Path(folder) / ".kindlm" / "kindlm.db"
    record_history(database, runs=_RUNS, tests=tests, latest_fails=outage, retried=retried)
    return run_name(0), run_name(_RUNS - 1)


def _measured(sizes: Sizes, folder: Path, runs: tuple[str, str], form: str) -> list[Measured]:
    command = ("diff", *runs, "--format", form, "--fail-on", "never")
    kindlm(*command, folder=folder)
    return [kindlm(*command, folder=folder) for _ in range(sizes.runs)]
