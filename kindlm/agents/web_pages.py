"""Pages for people: a login, an error of a server or proxy, never an answer of an agent."""

from __future__ import annotations

import re

__all__ = ["is_page"]

_BEGINNING = re.compile(r"[\ufeff\s]*<(?:!doctype\s+html|html)\b", re.IGNORECASE)


def is_page(text: str) -> bool:
    """Tell whether a text begins as an HTML document does, whatever it was sent as."""
    return _BEGINNING.match(text) is not None
