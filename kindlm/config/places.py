"""Places in a file: where a value stands, and how users write the way to it."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

Path = tuple[str | int, ...]
"""Keys and list positions from the top of the document."""

_LINE_BREAK = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the text; lines and columns count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with the text itself. `limit` tells a refused size from a syntax error."""

    message: str
    hint: str
    position: Position | None = None
    path: Path = ()
    limit: bool = False


class SourceText:
    """A text that knows where its lines begin."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(match.end() for match in _LINE_BREAK.finditer(text))]

    def position(self, index: int) -> Position:
        """Return the place of a character."""
        line = bisect_right(self._starts, index)
        return Position(line, index - self._starts[line - 1] + 1)

    def line(self, number: int) -> str | None:
        """Return the text of a line without its end, None if there is no such line."""
        if not 1 <= number <= len(self._starts):
            return None
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[self._starts[number - 1] : end].rstrip("\r\n")


def dotted(path: Path) -> str:
    """Return a path as users write it: `tests[2].expect.output`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
