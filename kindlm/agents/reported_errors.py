"""What agents say of their own failure, wherever they say it."""

from __future__ import annotations

from typing import Any

from kindlm.agents.json_values import compact_json, lookup

__all__ = ["error_text"]


def error_text(*parts: Any) -> str:
    """Return what the first part that says anything says: a text, or an object.

    An object says it as the kind of `error` and its `message`, as far as they are there, else by
    whatever `error` holds.
    """
    for part in parts:
        if isinstance(part, str) and part:
            return part
        kind, inner = lookup(part, "error"), lookup(part, "error.message")
        message = inner if isinstance(inner, str) else lookup(part, "message")
        words = [word for word in (kind, message) if isinstance(word, str) and word]
        if words:
            return ": ".join(words)
        if isinstance(kind, dict | list) and kind:
            return compact_json(kind)
    return "no explanation"
