"""The refusals that all checks of Messages requests share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kindlm.testing.wire import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator


def refuse(message: str) -> Refusal:
    """A 400 as the API sends it."""
    return Refusal(400, "invalid_request_error", message)


def typed(value: Any, kind: type, where: str) -> Iterator[Refusal]:
    """Refuses a value of another type."""
    if not isinstance(value, kind):
        expected = {str: "string", list: "list", dict: "dictionary", bool: "boolean"}[kind]
        yield refuse(f"{where}: Input should be a valid {expected}")


def text_refusals(block: dict[str, Any], where: str, owner: str) -> Iterator[Refusal]:
    """Refuses a block of text without any; `owner` is what the API names then."""
    yield from typed(block.get("text"), str, f"{where}.text.text")
    if not block["text"]:
        yield refuse(f"{owner}: text content blocks must be non-empty")
    if not block["text"].strip():
        yield refuse(f"{owner}: text content blocks must contain non-whitespace text")
