"""What a plain YAML scalar means under the core schema of YAML 1.2 (section 10.3 of the standard).

`no`, `on`, `12:30:45` and dates are text, `010` is ten: unlike YAML 1.1, which PyYAML resolves.
"""

from __future__ import annotations

import math
import re

TAG_PREFIX = "tag:yaml.org,2002:"

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_INTEGER = re.compile(r"[-+]?[0-9]+", re.ASCII)
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_JSON = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

_MAX_DIGITS = 1_000
"""Longer numbers are a mistake or an attack: reading n digits takes n² time."""


class ScalarError(ValueError):
    """A scalar has no value that JSON could hold."""


def resolve_plain(text: str) -> str | int | float | bool | None:
    """Return the value of an unquoted scalar; raise `ScalarError` for one that JSON cannot hold."""
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    number = _number(text)
    return text if number is None else number


def resolve_tagged(tag: str, text: str) -> str | int | float | bool | None:
    """Return the value of a scalar with an explicit tag of the core schema, such as `!!str`."""
    kind = tag.removeprefix(TAG_PREFIX)
    if kind == "str":
        return text
    value = resolve_plain(text)
    fits = {
        "null": value is None,
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, (int, float)) and not isinstance(value, bool),
    }
    if kind not in fits:
        raise ScalarError(f"the tag {tag.replace(TAG_PREFIX, '!!')} is not supported")
    if not fits[kind]:
        raise ScalarError(f"this is no !!{kind}")
    return float(value) if kind == "float" and isinstance(value, int) else value


def _number(text: str) -> int | float | None:
    if _NOT_JSON.fullmatch(text):
        raise ScalarError(f"{text} is not a number that JSON can hold")
    if not (_INTEGER.fullmatch(text) or _BASED.fullmatch(text) or _FLOAT.fullmatch(text)):
        return None
    if len(text) > _MAX_DIGITS:
        raise ScalarError(f"a number of {len(text)} characters is too long")
    if _INTEGER.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text[2:], 8 if text[1] == "o" else 16)
    value = float(text)
    if not math.isfinite(value):
        raise ScalarError(f"{text} is too large")
    return value
