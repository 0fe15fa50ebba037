"""What agents say of their own failure, and of what ended their answer, wherever they say it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kindlm.agents.json_values import compact_json, lookup

CALLS_MISSING = "it ends to call tools and holds no tool call"
_REASONS = ("finish_reason", "stop_reason", "finishReason", "stopReason")
_CALLS = frozenset({"tool_calls", "tool_use", "function_call"})
_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "content_filter", "incomplete"})


def end_reasons(value: Any) -> tuple[str, ...]:
    """Return what an answer or an event says ended it, in the spelling of OpenAI's API."""
    choices = lookup(value, "choices")
    parts = [value, lookup(value, "delta"), lookup(value, "message")]
    parts += choices if isinstance(choices, list) else []
    found = (part.get(key) for part in parts if isinstance(part, dict) for key in _REASONS)
    return tuple(it.lower().replace("-", "_") for it in found if isinstance(it, str))


def calls_tools(reasons: Iterable[str]) -> bool:
    """Tell whether an answer ended for its tool calls, so that there has to be one."""
    return not _CALLS.isdisjoint(reasons)


def end_notes(reasons: Iterable[str]) -> tuple[str, ...]:
    """Return the warning of an answer that was cut off, if one of the reasons says so."""
    cut = next((reason for reason in reasons if reason in _CUT), None)
    return () if cut is None else (f"The answer was cut off: the agent says `{cut}`.",)


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
