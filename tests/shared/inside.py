"""kindlm in the process of the tests: a command line takes a tenth of the time of a fork.

What it imports from its folder, its environment and its folder are forgotten afterwards. Whatever
is about the process itself needs one of its own: signals, exits, descriptors, what Python loads.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from pytest_project import as_it_was

from kindlm import packages
from kindlm.cli.app import run


def run_inside(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command line, as `subprocess.run` does with `python -m kindlm`."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with _in(cwd, env), redirect_stdout(out), redirect_stderr(err):
        code = run(arguments)
    texts = (_written(stream) for stream in (out, err))
    return subprocess.CompletedProcess(list(arguments), code, *texts)


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode("utf-8")


@contextmanager
def _in(folder: Path, env: Mapping[str, str]) -> Iterator[None]:
    _forget_packages_of(folder)
    try:
        with as_it_was(folder), chdir(folder):
            os.environ.clear()
            # As wide as without a terminal, which the one who runs the tests may have.
            os.environ.update({"COLUMNS": "80", **env})
            sys.path.insert(0, str(folder))
            yield
    finally:
        _forget_packages_of(folder)


def _forget_packages_of(folder: Path) -> None:
    """Let packages be looked for anew if some stand in a folder: those installed are the same."""
    if any(folder.glob("*.dist-info")):
        forget_packages()


def forget_packages() -> None:
    """Let packages be looked for anew."""
    packages.installed.cache_clear()
    packages._load.cache_clear()
