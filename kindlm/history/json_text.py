"""JSON that models and tools wrote, read so that any reader can write it again."""

from __future__ import annotations

import json
from typing import Any

from kindlm.strict_json import parse_json

_MAX_DEPTH = 200


def read_json(text: str | None) -> Any:
    """Return the JSON value of a text; the text itself if it is none; None if there is no text.

    What Python takes and JSON, or other parsers, do not, is no JSON here: NaN, numbers without a
    finite value, halves of surrogate pairs, hundreds of levels.
    """
    if text is None:
        return None
    try:
        value = parse_json(text)
        _require_shallow(value)
        json.dumps(value, ensure_ascii=False).encode()
    # A surrogate is a UnicodeEncodeError, which is a ValueError.
    except (ValueError, RecursionError):
        return text
    return value


def read_arguments(text: str | None) -> Any:
    """Return the arguments of a tool call: an object, or the text that should have been one.

    What is no object stays as it was written: evidence counts its characters.
    """
    value = read_json(text)
    return value if isinstance(value, dict) else text


def _require_shallow(value: Any) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH):
        if not level:
            return
        level = [child for parent in level for child in _children(parent)]
    raise ValueError("too deep")


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
