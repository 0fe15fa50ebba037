"""Output that a CI runner takes for nothing but text.

GitHub Actions looks for workflow commands in what a step prints: lines that begin with `::`, and
`##[` anywhere in a line (`ActionCommand` of https://github.com/actions/runner). What an agent says
is printed, too, and must not be able to give such commands: to hide lines, to annotate files, to
mask words, to stop the commands of others.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO, cast

__all__ = ["inert_output", "on_github", "uninterpreted"]

_COMMAND = re.compile(r"(?<![^\r\n])[^\S\r\n]*:(:)|##(\[)")


def on_github(environ: Mapping[str, str]) -> bool:
    """Tell whether this is a step of GitHub Actions, or of a service that works like it."""
    return environ.get("GITHUB_ACTIONS") == "true"


@contextmanager
def inert_output(environ: Mapping[str, str] = os.environ) -> Iterator[None]:
    r"""Keep workflow commands out of both streams while the context lasts.

    What would begin one is written out: `:\u003a`, `##\u005b`. Inside of JSON that is the same
    text. A stream that goes to a file stays as it is: no runner reads it.
    """
    before = sys.stdout, sys.stderr
    if on_github(environ):
        sys.stdout, sys.stderr = (_inert(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def uninterpreted(stream: TextIO) -> TextIO:
    """Return the stream below one that is kept inert, for commands of our own."""
    return stream.below if isinstance(stream, _Inert) else stream


class _Inert:
    """A text stream; what is not writing goes to the stream below."""

    def __init__(self, below: TextIO) -> None:
        self.below = below
        # Stands for what the unfinished line holds: as much of it as may begin a command.
        self._line = ""

    def write(self, text: str) -> int:
        """Write a text without what would begin a command, also one begun by an earlier text."""
        begun = self._line
        whole = _COMMAND.sub(_written_out, begun + text)
        self.below.write(whole[len(begun) :])
        self._line = _open_end(whole)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts one after the other."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)


def _inert(stream: TextIO) -> TextIO:
    try:
        is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        is_file = False
    return stream if is_file else cast("TextIO", _Inert(stream))


def _written_out(match: re.Match[str]) -> str:
    return match[0][:-1] + (r"\u003a" if match[1] else r"\u005b")


def _open_end(text: str) -> str:
    line = text[max(text.rfind("\n"), text.rfind("\r")) + 1 :]
    if line.strip() in ("", ":"):
        return line.strip()
    hashes = len(line) - len(line.rstrip("#"))
    return "x" + "#" * min(hashes, 2)
