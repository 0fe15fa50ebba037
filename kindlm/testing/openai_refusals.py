"""The refusals that all checks of Chat Completions requests share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kindlm.testing.wire import Refusal, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = re.compile(r"[a-zA-Z0-9_-]+\Z")


def refuse(message: str, param: str | None = None, code: str | None = None) -> Refusal:
    """A 400 as the API sends it."""
    return Refusal(400, "invalid_request_error", message, param, code)


def typed(value: Any, kind: type, param: str) -> Iterator[Refusal]:
    """Refuses a value of another type."""
    if not isinstance(value, kind):
        expected = "an array" if kind is list else "an object" if kind is dict else "a string"
        got = kind_of(value)
        article = "an" if got[0] in "aeio" else "a"
        text = got if value is None else f"{article} {got}"
        message = f"Invalid type for '{param}': expected {expected}, but got {text} instead."
        yield refuse(message, param, "invalid_type")


def empty(param: str) -> Refusal:
    """Refuses an empty list."""
    message = (
        f"Invalid '{param}': empty array. Expected an array with minimum length 1, "
        "but got an empty array instead."
    )
    return refuse(message, param, "empty_array")


def name_refusals(name: Any, param: str) -> Iterator[Refusal]:
    """Refuses what is no name of a tool or a schema."""
    if name is None:
        message = f"Missing required parameter: '{param}'."
        yield refuse(message, param, "missing_required_parameter")
    yield from typed(name, str, param)
    if not _NAME.match(name):
        message = (
            f"Invalid '{param}': string does not match pattern. "
            "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        )
        yield refuse(message, param, "invalid_value")
    if len(name) > 64:
        message = (
            f"Invalid '{param}': string too long. Expected a string with maximum length 64, "
            f"but got a string with length {len(name)} instead."
        )
        yield refuse(message, param, "string_above_max_length")
