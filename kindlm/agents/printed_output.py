"""What Python agents print: shown on standard error as it comes, without the secrets of the run."""

from __future__ import annotations

import codecs
import contextlib
import sys
from collections.abc import Callable

__all__ = ["PrintedOutput"]

_KEPT_BYTES = 16_384
_LONGEST_LINE = 65_536
_HELD_BACK = 8_192
"""Of a longer line, so many characters wait for what follows: a secret may have begun in them."""


class PrintedOutput:
    """Shows line by line what arrives in pieces, and keeps the end of it.

    Args:
        redact: takes secrets out of a text. It is given whole lines: a piece may end within one.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""
        self.tail = ""

    def add(self, chunk: bytes) -> None:
        """Take what was printed."""
        text = self._decoder.decode(chunk)
        self.tail = (self.tail + text)[-_KEPT_BYTES:]
        lines, end, rest = (self._waiting + text).rpartition("\n")
        self._waiting = rest
        self._show(self._redact(lines + end))
        if len(rest) > _LONGEST_LINE:
            hidden = self._redact(rest)
            self._waiting = hidden[-_HELD_BACK:]
            self._show(hidden[:-_HELD_BACK])

    def finish(self) -> None:
        """Show what is left: nothing more will come."""
        left, self._waiting = self._waiting, ""
        self._show(self._redact(left))

    def _show(self, text: str) -> None:
        if not text:
            return
        # Nobody may read it any more.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()
