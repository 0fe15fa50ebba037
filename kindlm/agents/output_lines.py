"""What a program prints, one line after another."""

from __future__ import annotations

import asyncio
from collections import deque

from kindlm.agents.process_group import TooMuchOutput

__all__ = ["OutputLines"]


class OutputLines:
    """Takes what comes through a pipe in pieces, and gives it out line by line.

    Args:
        limit: how many bytes may wait to be taken, line ends left out.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines = deque[bytes]()
        self._begun = bytearray()
        self._waiting = 0
        self.arrived = asyncio.Event()
        """Set when something arrives; whoever waits for it clears it."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing but white space waits."""
        return not any(map(bytes.strip, self._lines)) and not self._begun.strip()

    def add(self, chunk: bytes) -> None:
        """Take what was printed; raise `TooMuchOutput` if more waits than may."""
        self._waiting += len(chunk) - chunk.count(b"\n")
        self._begun += chunk
        if b"\n" in chunk:
            *whole, rest = bytes(self._begun).split(b"\n")
            self._lines.extend(whole)
            self._begun = bytearray(rest)
        self.arrived.set()
        if self._waiting > self._limit:
            raise TooMuchOutput

    def take(self) -> bytes | None:
        """Return the next whole line without its end, None if there is none yet."""
        if not self._lines:
            return None
        line = self._lines.popleft()
        self._waiting -= len(line)
        return line

    def take_rest(self) -> bytes | None:
        """Return what was printed after the last line end, None if nothing was."""
        rest = bytes(self._begun)
        self._begun.clear()
        self._waiting -= len(rest)
        return rest or None
