"""Placeholders in replies: `{{path}}`, or `{{path|default}}` where the path may be absent.

Values are put in once and never expanded again. A text that is one placeholder keeps the value's
type, so that a number stays a number in tool arguments.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MISSING = object()
_PLACEHOLDER = re.compile(r"\{\{([^{}|]+)(?:\|([^{}]*))?\}\}")


class MissingValue(Exception):  # noqa: N818 - it says what happened to a placeholder
    """A placeholder names something that is not there."""


def look_up(path: str, scope: Any) -> Any:
    """The value at a dotted path (list positions are numbers), or `MISSING`."""
    value = scope
    for part in path.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif (
            isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value)
        ):
            value = value[int(part)]
        else:
            return MISSING
    return value


def fill(template: Any, scope: Mapping[str, Any]) -> Any:
    """The template with its placeholders replaced, at every level.

    Raises:
        MissingValue: when a path without a default is absent.
    """
    if isinstance(template, str):
        return _fill_text(template, scope)
    if isinstance(template, dict):
        return {key: fill(value, scope) for key, value in template.items()}
    if isinstance(template, list):
        return [fill(value, scope) for value in template]
    return template


def fill_text(template: str, scope: Mapping[str, Any]) -> str:
    """As `fill`, always giving text."""
    return as_text(_fill_text(template, scope))


def as_text(value: Any) -> str:
    """A value inside a text: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _fill_text(template: str, scope: Mapping[str, Any]) -> Any:
    if "{{" not in template:
        return template
    whole = _PLACEHOLDER.fullmatch(template)
    if whole is not None:
        return _value(whole, scope)
    return _PLACEHOLDER.sub(lambda match: as_text(_value(match, scope)), template)


def _value(match: re.Match[str], scope: Mapping[str, Any]) -> Any:
    path, default = match.group(1).strip(), match.group(2)
    value = look_up(path, scope)
    if value is not MISSING:
        return value
    if default is None:
        raise MissingValue(path)
    return default
