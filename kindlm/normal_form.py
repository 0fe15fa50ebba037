"""Normalises texts for a second look: NFKC, ASCII hyphens and quotes, no invisible characters.

So a full-width digit is a digit, a no-break space is a space, a composed accent equals a combining
one, and a zero-width character within a word hides nothing. Models also write typographic hyphens
and apostrophes. Checks look for forbidden text in the text as written and in this form.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from kindlm.dataclass import dataclass
from kindlm_store.decoding import spelled

INVISIBLE = (
    # Controls that are no white space.
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
"""Characters that no reader sees, as a class of a pattern has them between its brackets."""

TAGS = {0xE0000 + code: code for code in range(0x20, 0x7F)}
"""For `str.translate`: copies of ASCII that no font shows, and that some models read."""

_PLAIN = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201b\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u201f", '"'),
    }
)
"""Hyphens and quotes of typesetters, for which keyboards have others."""

_INVISIBLE = re.compile(f"[{INVISIBLE}]")
_NOT_IN_NAMES = re.compile("[\t-\r\x85\ufffd]")
"""Part of a text, but not of a name: line breaks, tabs, and what NUL is recorded as."""

_MOST_MARKS = 30
"""Characters that are composed with one another, at most; as in Unicode's Stream-Safe Text Format.
To put marks in order takes a time that is quadratic in their number."""


@dataclass(frozen=True, slots=True)
class NormalForm:
    """A text in normal form; `places` holds the range of the written text behind each character."""

    text: str
    places: tuple[tuple[int, int], ...]

    def written(self, start: int, end: int) -> tuple[int, int]:
        """Return the range of the written text that a range of this one, of any length, is of."""
        if start == end:
            at = self.places[start][0] if start < len(self.places) else self.places[-1][1]
            return at, at
        return self.places[start][0], self.places[end - 1][1]


@lru_cache(maxsize=16)
def normal_form(text: str) -> NormalForm | None:
    """Return the normal form of a text, None if it is the text itself or empty.

    Takes time linear in the length of the text.
    """
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
    """Return a name without what a reader may not notice: case, controls, blanks around it."""
    form = normal_form(name)
    text = form.text if form is not None else _INVISIBLE.sub("", name)
    return _NOT_IN_NAMES.sub("", text).casefold().strip()


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a text that are composed apart: a character with the marks after it."""
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
"""So often JSON may be inside JSON: the body of a request holds what a tool said, and so on."""

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def readings_of(text: str) -> Iterator[str]:
    """Yield a text, and what it says once the escapes of JSON are undone."""
    yield text
    for _ in range(_LEVELS):
        if "\\" not in text:
            return
        # Halves of characters that JSON wrote apart come together again.
        text = with_pairs_joined(_ESCAPE.sub(_unescaped, text))
        yield text


def meanings_of(text: str) -> Iterator[str]:
    """Yield the readings of a text, and those of what it says in pieces.

    Such pieces are a few characters with each event of a stream, or with each string of JSON.
    """
    yield from readings_of(text)
    if said := spelled(text):
        yield from readings_of(said)


def with_pairs_joined(text: str) -> str:
    """Return a text in which no character is written as two halves of UTF-16."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _CONTROLS.get(escape, escape)
