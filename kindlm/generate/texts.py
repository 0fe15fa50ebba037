"""Texts that models wrote, as they are put into files: bounded, and of one line where that is due.

Nothing here makes a text safe to stand in code: that is what `literals` is for.
"""

from __future__ import annotations

import re

__all__ = ["is_name", "one_line", "slug", "spoken"]

_SPACES = re.compile(r"\s+")
_NO_LETTERS = re.compile(r"[^a-z0-9]+")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_MOST_IN_SLUG = 50
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
    """Return the words of a text as a part of a file's name: lower case, digits, underscores."""
    words = _NO_LETTERS.sub("_", text.lower()).strip("_")
    return words[:_MOST_IN_SLUG].rstrip("_") or "scenario"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
