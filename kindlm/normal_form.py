"""Normalises text: NFKC, ASCII hyphens and quotes, no invisible characters.

Checks look for forbidden text in the original text and in this form, so that full-width digits,
no-break spaces, combining accents, zero-width characters and typographic quotes do not hide it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from kindlm.dataclass import dataclass
from kindlm_store.decoding import spelled

INVISIBLE = (
    # Controls other than white space.
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"
    # Unicode's Default_Ignorable_Code_Point: zero-width characters, soft hyphens, marks of
    # direction, variation selectors, fillers, tags.
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
    # The other format characters, and the Braille pattern without a dot.
    "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u2800\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f"
)
"""Invisible characters, for a character class of a pattern."""

TAGS = {0xE0000 + code: code for code in range(0x20, 0x7F)}
"""A table for `str.translate` from tag characters, which are invisible copies of ASCII."""

_PLAIN = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201b\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u201f", '"'),
    }
)
"""Typographic hyphens and quotes."""

_INVISIBLE = re.compile(f"[{INVISIBLE}]")
_NOT_IN_NAMES = re.compile("[\t-\r\x85\ufffd]")
"""Removed from names: line breaks, tabs, and the character that replaces NUL in the record."""

_MOST_MARKS = 30
"""The limit of Unicode's Stream-Safe Text Format for combining marks in a row, since sorting them
takes quadratic time."""


@dataclass(frozen=True, slots=True)
class NormalForm:
    """A text in normal form; `places` has the original range of each character."""

    text: str
    places: tuple[tuple[int, int], ...]

    def written(self, start: int, end: int) -> tuple[int, int]:
        """Return the range in the original text for a range in this one."""
        if start == end:
            at = self.places[start][0] if start < len(self.places) else self.places[-1][1]
            return at, at
        return self.places[start][0], self.places[end - 1][1]


@lru_cache(maxsize=16)
def normal_form(text: str) -> NormalForm | None:
    """Return the normal form of a text, None if it is unchanged or empty; takes linear time."""
    if text.isascii() and _INVISIBLE.search(text) is None:
        return None
    pieces, places = list[str](), list[tuple[int, int]]()
    for start, end in _clusters(text):
        visible = _INVISIBLE.sub("", text[start:end])
        piece = unicodedata.normalize("NFKC", visible).translate(_PLAIN)
        pieces.append(piece)
        places += [(start, end)] * len(piece)
    found = "".join(pieces)
    return None if found in (text, "") else NormalForm(found, tuple(places))


def plain_name(name: str) -> str:
    """Return a name without differences that readers miss: case, controls, surrounding blanks."""
    form = normal_form(name)
    text = form.text if form is not None else _INVISIBLE.sub("", name)
    return _NOT_IN_NAMES.sub("", text).casefold().strip()


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for index, char in enumerate(text):
        if index > start and (index - start >= _MOST_MARKS or not _joins(char)):
            yield start, index
            start = index
    if text:
        yield start, len(text)


def _joins(char: str) -> bool:
    """Return whether a character may be composed with the one before it."""
    if char < "\u00ad":
        return False
    is_vowel_or_final = "\u1160" <= char <= "\u11ff"  # of a Korean syllable
    return (
        is_vowel_or_final
        or unicodedata.category(char).startswith("M")
        or _INVISIBLE.match(char) is not None
    )


_LEVELS = 3
"""How many levels of JSON in JSON are read: a request contains tool results, and so on."""

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def readings_of(text: str) -> Iterator[str]:
    """Yield a text, then the text with JSON's escapes resolved, level by level."""
    yield text
    for _ in range(_LEVELS):
        if "\\" not in text:
            return
        # JSON escapes a character beyond 16 bits as two halves.
        text = with_pairs_joined(_ESCAPE.sub(_unescaped, text))
        yield text


def meanings_of(text: str) -> Iterator[str]:
    """Yield the readings of a text, and those of text that it contains in pieces.

    Such pieces are in the events of a stream, or in the strings of JSON.
    """
    yield from readings_of(text)
    if joined := spelled(text):
        yield from readings_of(joined)


def with_pairs_joined(text: str) -> str:
    """Return a text with surrogate pairs joined to characters."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _CONTROLS.get(escape, escape)
