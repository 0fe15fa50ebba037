"""Placeholders in simulated answers: `{{args.order_id}}`, `{{state.items[0].price}}`.

A text that is one placeholder becomes the value it names, whatever its type. Inside a longer text
a string is put in as it is and anything else as JSON. What is put in is not looked at again, and
what looks like a placeholder but names neither `args` nor `state` stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kindlm.suite import TOOL_PLACEHOLDER

__all__ = ["MissingValueError", "fill"]

_PART = re.compile(r"\.([\w-]+)|\[([0-9]+)\]")
_MAX_DIGITS = 9


class MissingValueError(Exception):
    """A placeholder whose path leads nowhere; the path is the message."""


def fill(template: Any, scope: Mapping[str, Any]) -> Any:
    """Return a JSON value with all placeholders in its texts replaced; keys stay as they are.

    `scope` holds `args` and `state`. Raises `MissingValueError`.
    """
    match template:
        case str():
            return _filled(template, scope)
        case Mapping():
            return {key: fill(item, scope) for key, item in template.items()}
        case list() | tuple():
            return [fill(item, scope) for item in template]
        case _:
            return template


def _filled(template: str, scope: Mapping[str, Any]) -> Any:
    whole = TOOL_PLACEHOLDER.fullmatch(template)
    if whole is not None:
        return _value(whole[1], scope)
    return TOOL_PLACEHOLDER.sub(lambda found: _as_text(_value(found[1], scope)), template)


def _value(path: str, scope: Mapping[str, Any]) -> Any:
    root = path.partition(".")[0].partition("[")[0]
    value = scope[root]
    for name, index in _PART.findall(path[len(root) :]):
        value = _member(value, name or index, path)
    return value


def _member(value: Any, part: str, path: str) -> Any:
    if isinstance(value, Mapping) and part in value:
        return value[part]
    is_index = part.isascii() and part.isdecimal() and len(part) <= _MAX_DIGITS
    if isinstance(value, list) and is_index and int(part) < len(value):
        return value[int(part)]
    raise MissingValueError(path)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
