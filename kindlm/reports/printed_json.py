r"""JSON that is safe to print, whatever its texts hold.

JSON itself escapes the controls of ASCII alone. What else a terminal obeys (U+009B begins an escape
sequence as `ESC [` does), takes for a line break, or shows in another order or not at all, is
written as `\uXXXX` here: the same value, for whoever reads it as JSON (RFC 8259, section 7).
"""

from __future__ import annotations

import json
from typing import Any

from kindlm.reports.untrusted import Escapes


def printed_json(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON without characters that change what is seen around them.

    Raises:
        ValueError: It holds a number that is not finite, which JSON has no words for.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    # Outside of its strings JSON is ASCII, and of that only the line breaks of `indent` are met.
    return _ESCAPES.written(text)


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1]


_ESCAPES = Escapes(_escaped)
