"""Words for values that do not fit: what they are, what they must be, and how to write them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kindlm.suggestions import hint_for
from kindlm.wording import cut, printable
from kindlm.yaml_document import ScalarError, resolve_plain

_EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_RANGES = {
    "greater_than_equal": ("at least", "ge"),
    "less_than_equal": ("at most", "le"),
    "greater_than": ("more than", "gt"),
    "too_short": ("", "min_length"),
    "too_long": ("", "max_length"),
}
_PER_CENT = 100
_MAX_VALUE = 61


def describe(kind: str, given: Any, context: dict[str, Any], text: str) -> tuple[str, str | None]:
    """Return the message and the hint of an error of pydantic, `text` in its own words."""
    if kind == "refused":
        return context.get("message", text), context.get("hint")
    if kind in ("value_error", "assertion_error"):
        return f"is refused: {printable(str(context.get('error', text)))}", None
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind]}, but is {kind_of(given)}", _type_hint(kind, given)
    if kind in ("literal_error", "enum"):
        choices = context["expected"].replace(" or ", ", ").split(", ")
        return describe_choice(given, [choice.strip("'") for choice in choices])
    if kind == "string_too_short" or (kind == "too_short" and given == ""):
        return "must not be empty", None
    if kind == "string_pattern_mismatch":
        return "may hold letters, digits and _ only", None
    if kind in _RANGES:
        return _describe_range(kind, given, context)
    # Types of packages have further kinds of errors.
    return f"has an invalid value: {_shown(given)}", printable(text)


def _type_hint(kind: str, given: Any) -> str | None:
    """Return whether quotes give the value the right type."""
    if kind == "string_type" and isinstance(given, (bool, int, float)):
        return "Put it in quotes to make it a string"
    if isinstance(given, str):
        with suppress(ScalarError):
            if isinstance(resolve_plain(given), (bool, int, float)):
                return "Write it without quotes"
    return None


def _describe_range(kind: str, given: Any, context: dict[str, Any]) -> tuple[str, str | None]:
    words, name = _RANGES[kind]
    bound, hint = context[name], None
    if kind == "too_short":
        return f"must have at least {bound} entry, but is empty", None
    if kind == "too_long":
        return f"has {len(given):,} entries, but {bound:,} is the most", None
    if context.get("le") == 1 and isinstance(given, (int, float)) and 1 < given <= _PER_CENT:
        hint = f"It is a share from 0 to 1: write {given / _PER_CENT:g} for {given:g} %"
    return f"must be {words} {_number(bound)}, but is {_shown(given)}", hint


def describe_choice(given: Any, choices: Sequence[str], more: str = "") -> tuple[str, str | None]:
    """Return the message and the hint of a value that is none of the choices.

    `more` ends the hint if no choice resembles the value.
    """
    if not isinstance(given, str) or len(choices) == 1:
        return f"must be {' or '.join(choices)}, but is {kind_of(given)}", None
    hint = hint_for(given, choices, "Allowed", more)
    return f"must be one of {', '.join(choices)}, but is {_shown(given)}", hint


def kind_of(value: Any) -> str:
    """Return what a value is, for messages: `the number 7`, `a list`."""
    match value:
        case bool():
            return f"the boolean {str(value).lower()}"
        case int() | float():
            return f"the number {cut(repr(value), _MAX_VALUE)}"
        case str():
            return f"the text {_shown(value)}"
    return "a list" if isinstance(value, list) else "a mapping" if value is not None else "empty"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f'"{cut(value, _MAX_VALUE)}"'
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return _number(value) if is_number else kind_of(value)


def _number(value: float) -> str:
    return cut(str(value) if isinstance(value, int) else f"{value:g}", _MAX_VALUE)
