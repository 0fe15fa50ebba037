"""Whether a text of a user names a tool, or just holds a word that one could be called."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["names_tool"]

_MADE = re.compile(r"[_.\-\d]|[a-z][A-Z]")
"""What names of tools have and words do not: `lookup_order`, `lookupOrder`, `orders.find`."""

_LIST = re.compile(
    r"\b(?:tools?|functions?)\b[^\n:.]{0,40}:[ \t]*(?P<rest>[^\n]*)"
    r"(?P<points>(?:\n[ \t]*[-*\d][^\n]*)*)",
    re.IGNORECASE,
)
_POINT = re.compile(r"\n[ \t]*(?:[-*]|\d+[.)])[ \t]*")
_NEXT = re.compile(r"[,;]|\band\b|\bor\b")
_END = re.compile(r"\.\s|\.$|[:(\u2013\u2014]|\s-\s")
_QUOTES = "`'\" \t*"


def names_tool(text: str, name: str) -> bool:
    """Tell whether a text names a tool.

    It does where the name stands as a whole and could be nothing else: it is no plain word, or in
    backquotes or quotes, or called a tool or a function, or in a list of them ("Tools: search").
    """
    whole = re.compile(rf"(?<![\w.\-]){re.escape(name)}(?![\w\-]|\.\w)")
    if not whole.search(text):
        return False
    called = rf"(?:[`'\"]{re.escape(name)}[`'\"]|{whole.pattern}(?:\(|\s+(?:tool|function)\b))"
    made = _MADE.search(name) is not None
    return made or re.search(called, text) is not None or name in _listed(text)


def _listed(text: str) -> Iterator[str]:
    """Yield the entries of lists of tools, each up to what is said about it."""
    for found in _LIST.finditer(text):
        sentence = re.split(r"\.\s", found["rest"], maxsplit=1)[0]
        yield from (_bare(entry) for entry in _NEXT.split(sentence))
        yield from (_bare(point) for point in _POINT.split(found["points"]))


def _bare(entry: str) -> str:
    return _END.split(entry, maxsplit=1)[0].strip(_QUOTES)
