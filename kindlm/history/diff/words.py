"""What changed in a text, word by word.

The differences are the fewest words to take out and put in: E. W. Myers, "An O(ND) Difference
Algorithm and Its Variations", Algorithmica 1 (1986), 251-266. Texts come from models, so that the
work is bounded: texts that have little in common are replaced as a whole, which is also how a
person would rather read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple, TypeAlias

__all__ = ["Edit", "Segment", "WordDiff", "diff_words"]

_WORDS = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")
_MOST_CHARACTERS = 20_000
_MOST_EDITS = 300
_SHORTEST_ISLAND = 2
"""So many words have to stay between two changes to be shown as something that stayed."""


class Edit(StrEnum):
    """What became of a piece of text."""

    KEPT = "kept"
    REMOVED = "removed"
    ADDED = "added"


class Segment(NamedTuple):
    """A piece of text and what became of it."""

    edit: Edit
    text: str


_Word: TypeAlias = tuple[Edit, str]


@dataclass(frozen=True, slots=True)
class WordDiff:
    """Two texts as one: `kept` and `removed` are the older one, `kept` and `added` the newer one.

    `left_out` counts the characters of the longer text that were not compared.
    """

    segments: tuple[Segment, ...]
    left_out: int = 0

    @property
    def changed(self) -> bool:
        """Whether the texts differ in what was compared."""
        return any(segment.edit is not Edit.KEPT for segment in self.segments)


def diff_words(before: str, after: str) -> WordDiff:
    """Compare two texts; of very long ones, the first 20,000 characters."""
    left_out = max(len(before), len(after)) - _MOST_CHARACTERS
    old = _WORDS.findall(before[:_MOST_CHARACTERS])
    new = _WORDS.findall(after[:_MOST_CHARACTERS])
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    edits = [
        *((Edit.KEPT, word) for word in old[:start]),
        *_edits(old[start : len(old) - end], new[start : len(new) - end]),
        *((Edit.KEPT, word) for word in old[len(old) - end :]),
    ]
    return WordDiff(tuple(_joined(_without_islands(edits))), max(left_out, 0))


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many words are the same at the beginning."""
    for number, (one, other) in enumerate(zip(old, new, strict=False)):
        if one != other:
            return number
    return min(len(old), len(new))


def _edits(old: list[str], new: list[str]) -> list[_Word]:
    """Return the words of both lists, in order, each with what became of it."""
    path = _furthest(old, new)
    if path is None:
        return [*((Edit.REMOVED, word) for word in old), *((Edit.ADDED, word) for word in new)]
    edits: list[_Word] = []
    x, y = len(old), len(new)
    for edited in range(len(path) - 1, 0, -1):
        reached, diagonal = path[edited], x - y
        down = _goes_down(reached, diagonal, edited)
        came_from = diagonal + 1 if down else diagonal - 1
        start = reached[came_from]
        while x > start and y > start - came_from:
            x, y = x - 1, y - 1
            edits.append((Edit.KEPT, old[x]))
        x, y = start, start - came_from
        edits.append((Edit.ADDED, new[y]) if down else (Edit.REMOVED, old[x]))
    edits.extend((Edit.KEPT, word) for word in reversed(old[:x]))
    return edits[::-1]


def _furthest(old: Sequence[str], new: Sequence[str]) -> list[dict[int, int]] | None:
    """Return how far each diagonal had come before each edit; None if it takes too many."""
    reached = {1: 0}
    path = []
    for edited in range(min(len(old) + len(new), _MOST_EDITS) + 1):
        path.append(dict(reached))
        for diagonal in range(-edited, edited + 1, 2):
            down = _goes_down(reached, diagonal, edited)
            x = reached[diagonal + 1] if down else reached[diagonal - 1] + 1
            y = x - diagonal
            while x < len(old) and y < len(new) and old[x] == new[y]:
                x, y = x + 1, y + 1
            reached[diagonal] = x
            if x >= len(old) and y >= len(new):
                return path
    return None


def _goes_down(reached: dict[int, int], diagonal: int, edited: int) -> bool:
    """Tell whether a diagonal is best entered by adding a word, rather than by removing one."""
    if diagonal == -edited:
        return True
    return diagonal != edited and reached[diagonal - 1] < reached[diagonal + 1]


def _without_islands(edits: Iterable[_Word]) -> Iterator[_Word]:
    """Replace single words that stay in the middle of a change: they only make it hard to read."""
    runs = [(kept, list(words)) for kept, words in groupby(edits, key=_is_kept)]
    for number, (kept, words) in enumerate(runs):
        inside = 0 < number < len(runs) - 1
        if kept and inside and len(words) < _SHORTEST_ISLAND:
            for _, word in words:
                yield Edit.REMOVED, word
                yield Edit.ADDED, word
        else:
            yield from words


def _joined(edits: Iterable[_Word]) -> Iterator[Segment]:
    """Join words to pieces; of each change, what was removed comes first."""
    for kept, words in groupby(edits, key=_is_kept):
        listed = list(words)
        for edit in (Edit.KEPT,) if kept else (Edit.REMOVED, Edit.ADDED):
            text = "".join(word for found, word in listed if found is edit)
            if text:
                yield Segment(edit, text)


def _is_kept(word: _Word) -> bool:
    return word[0] is Edit.KEPT
