"""What a person writes into the search box, as an expression of full-text search.

Words are quoted, so that nothing in them is syntax, and all of them have to be in a text. Whoever
writes quotation marks, `*`, parentheses, AND, OR, NOT or NEAR is taken at his word, if that is an
expression: https://www.sqlite.org/fts5.html#full_text_query_syntax
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["expressions"]

_MOST = 500
"""Characters of a question."""

_SYNTAX = re.compile(r'["*^()]|\b(?:AND|OR|NOT|NEAR)\b')


def expressions(written: str) -> Iterator[str]:
    """Yield what to try, one after the other, until one is no error: as written, and as words."""
    text = written.replace("\0", " ")[:_MOST]
    if _SYNTAX.search(text):
        yield text
    words = [word.replace('"', " ").strip() for word in text.split()]
    # What has neither letter nor digit has no word to look for.
    if quoted := [f'"{word}"' for word in words if any(char.isalnum() for char in word)]:
        yield " ".join(quoted)
