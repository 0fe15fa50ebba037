"""What changed in a text, word by word.

Texts come from models, so that the work is bounded: where too many words lie between the same
beginning and the same end, all of them are replaced.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from typing import NamedTuple, TypeAlias

_WORDS = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")
_MOST_CHARACTERS = 20_000
_MOST_WORDS = 5_000
"""Of two texts, so many words that no beginning and no end share are compared with each other."""

_MOST_PAIRS = 100_000
"""With more pairs of the same word in both texts, words that are everywhere are no hold."""

_SHORTEST_ISLAND = 2
"""So many words have to stay between two changes: a single one only makes them hard to read."""


class Edit(StrEnum):
    """What became of a piece of text."""

    KEPT = "kept"
    REMOVED = "removed"
    ADDED = "added"


Segment: TypeAlias = tuple[Edit, str]
"""A piece of text and what became of it."""


class WordDiff(NamedTuple):
    """Two texts as one: `kept` and `removed` are the older one, `kept` and `added` the newer one.

    `left_out` counts the characters of the longer text that were not compared.
    """

    segments: tuple[Segment, ...]
    left_out: int = 0


def diff_words(before: str, after: str) -> WordDiff:
    """Compare two texts; of very long ones, the first 20,000 characters."""
    old = _WORDS.findall(before[:_MOST_CHARACTERS])
    new = _WORDS.findall(after[:_MOST_CHARACTERS])
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    # Words that stay, by their place in both texts; what lies between them was replaced.
    kept = [(0, 0, start)]
    inner_old, inner_new = old[start : len(old) - end], new[start : len(new) - end]
    if max(len(inner_old), len(inner_new)) <= _MOST_WORDS:
        times = Counter(inner_new)
        too_many = sum(times[word] for word in inner_old) > _MOST_PAIRS
        matcher = SequenceMatcher(None, inner_old, inner_new, autojunk=too_many)
        blocks = matcher.get_matching_blocks()
        kept += [(start + x, start + y, n) for x, y, n in blocks if n >= _SHORTEST_ISLAND]
    kept.append((len(old) - end, len(new) - end, end))
    pieces: list[tuple[Edit, list[str]]] = []
    x = y = 0
    for was, now, length in kept:
        pieces += [(Edit.REMOVED, old[x:was]), (Edit.ADDED, new[y:now])]
        x, y = was + length, now + length
        pieces.append((Edit.KEPT, old[was:x]))
    segments = tuple((edit, "".join(words)) for edit, words in pieces if words)
    return WordDiff(segments, max(len(before), len(after), _MOST_CHARACTERS) - _MOST_CHARACTERS)


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many words are the same at the beginning."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)))
