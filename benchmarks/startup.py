"""The time of commands without model calls."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Sizes
from benchmarks.processes import kindlm
from benchmarks.workspaces import write_tests


def startup(sizes: Sizes) -> Iterator[Figure]:
    """Yield the time of `--help`, and of `validate` for a long file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield Figure("kindlm --help", _walls(folder, sizes, "--help"), "s", "at most 0.2 s")
        write_tests(folder, tests=sizes.tests)
        what = f"kindlm validate, {sizes.tests:,} tests"
        yield Figure(what, _walls(folder, sizes, "validate"), "s", "at most 1 s")


def _walls(folder: Path, sizes: Sizes, *arguments: str) -> list[float]:
    kindlm(*arguments, folder=folder)
    return [kindlm(*arguments, folder=folder).wall_s for _ in range(sizes.runs)]
