"""What agents say of their own failure, wherever they say it."""

from __future__ import annotations

from typing import Any

from kindlm.agents.json_values import compact_json, lookup

__all__ = ["error_text", "tells_failure"]


def error_text(*parts: Any) -> str:
    """Return what the first part that says anything says: a text, or an object.

    An object says it as the kind of `error` and its `message` or `detail`, as far as they are
    there, else by whatever `error` holds.
    """
    for part in parts:
        if isinstance(part, str) and part:
            return part
        kind, inner = lookup(part, "error"), lookup(part, "error.message")
        messages = (inner, lookup(part, "message"), lookup(part, "detail"))
        message = next((said for said in messages if isinstance(said, str) and said), None)
        words = [word for word in (kind, message) if isinstance(word, str) and word]
        if words:
            return ": ".join(words)
        if isinstance(kind, dict | list) and kind:
            return compact_json(kind)
    return "no explanation"


def tells_failure(value: Any) -> bool:
    """Tell whether an object's `error` says that something failed: true, a text or an object.

    A number may be how far off an answer is. What is beside such an `error` as `message` or
    `detail` explains it, and is no answer.
    """
    error = lookup(value, "error")
    return error is True or (isinstance(error, str | dict) and bool(error))
