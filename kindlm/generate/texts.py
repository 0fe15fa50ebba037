"""Texts that models wrote, as they are put into files: bounded, and of one line where that is due.

Nothing here makes a text safe to stand in code: that is what `literals` is for.
"""

from __future__ import annotations

import re
import unicodedata

from kindlm.generate.literals import width_of

__all__ = ["is_name", "one_line", "slug", "spoken"]

_SPACES = re.compile(r"\s+")
_NO_LETTERS = re.compile(r"[^\w]+|_+")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_WIDEST_SLUG = 40
"""Columns: the line that begins a function with the longest category is not too long then."""

_LONGEST_NAME = 100


def one_line(text: str, limit: int) -> str:
    """Return a text in one line of at most `limit` characters, with nothing that is not seen."""
    beginning = text[: 4 * limit]
    seen = "".join(char if char.isprintable() else " " for char in beginning)
    return _cut(_SPACES.sub(" ", seen).strip(), limit)


def spoken(text: str, limit: int) -> str:
    """Return what a user says, as it is but for what no file and no agent can hold."""
    return _cut(_UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text[: limit + 1]), limit).strip()


def is_name(text: str) -> bool:
    """Tell whether a text can be the name of a tool: short, and nothing in it that is not seen."""
    return 0 < len(text) <= _LONGEST_NAME and text.isprintable() and text == text.strip()


def slug(text: str) -> str:
    """Return the words of a text as a part of a file's name, and of a function's.

    That is lower case, digits and underscores; letters of other alphabets stay, accents do not.
    """
    letters = "".join(map(_plain, unicodedata.normalize("NFKC", text.lower())))
    # Not all that counts as a letter may stand in a name.
    named = "".join(char if f"a{char}".isidentifier() else "_" for char in letters)
    words = _NO_LETTERS.sub("_", unicodedata.normalize("NFKC", named)).strip("_")
    while width_of(words) > _WIDEST_SLUG:
        words = words[:-1]
    return words.rstrip("_") or "scenario"


def _plain(letter: str) -> str:
    """Return a letter without its accents, if what is left is one of ASCII."""
    parts = unicodedata.normalize("NFKD", letter)
    bare = "".join(part for part in parts if not unicodedata.combining(part))
    return bare if bare.isascii() else letter


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
