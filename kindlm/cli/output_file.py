"""Writing to the file that `-o` names, whatever stands there: a file, a link, a pipe, a device."""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TextIO

STDOUT = Path("-")
"""The name that means standard output."""

_NOT_REPLACED = (Path("/dev"), Path("/proc"))
"""What is found there stands for something that is open already, even where that is a file."""


def replaces(path: Path) -> bool:
    """Tell whether there is a file that another one would take the place of."""
    return path.is_file() and not _is_written_through(path)


@contextmanager
def open_report(path: Path) -> Iterator[TextIO]:
    """Open a file for a report as `open_output` does; others may read it as the umask says."""
    with (
        open_output(path, mode=0o666) as out,
        io.TextIOWrapper(out, encoding="utf-8", newline="\n") as text,
    ):
        yield text


@contextmanager
def open_output(path: Path, *, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Open what is to be written, and create the folders that it is in.

    A regular file, also behind a symbolic link, takes its name when it is complete: what was there
    stays if that fails. Who may read and write it, `mode` and the umask say; by default its owner
    alone. Anything else is written to directly.

    Raises:
        OSError: It can not be written.
    """
    if _is_written_through(path):
        with path.open("wb") as out:
            yield out
        return
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        with os.fdopen(descriptor, "wb") as out:
            yield out
        part.replace(target)
    finally:
        with suppress(OSError):
            part.unlink()


def _is_written_through(path: Path) -> bool:
    if any(path.absolute().is_relative_to(folder) for folder in _NOT_REPLACED):
        return True
    return path.exists() and not path.is_file()
