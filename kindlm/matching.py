"""The one partial matcher: it serves `when`, `argsMatch` and every other partial match.

Both sides are JSON values. Every key that is expected must exist and match, further keys are
allowed at every level; arrays have equal length and match in order; numbers compare by value
(1 = 1.0, and a boolean is no number); strings compare exactly; null equals only a null that is
there; the order of keys never matters. Nothing is coerced.

The walk keeps its own stack, so that no depth of nesting overflows Python's, and it visits no
more than `actual` holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

# The way from the root, last part first: a walk of any depth shares what its paths have in common.
_Path: TypeAlias = "tuple[_Path | None, str | int]"

ABSENT: Final = object()
"""Stands for a value that is not there; null is something."""

_INDEX = re.compile(r"[0-9]{1,9}")
_PLAIN_KEY = re.compile(r"[^\W\d][\w-]*")


class Reason(StrEnum):
    """In what way a value does not match."""

    MISSING = "missing"
    TYPE = "type"
    LENGTH = "length"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One place where the actual value is not what was expected.

    `path` leads there from the root, as in `items[0].price`; it is empty for the root itself.
    `actual` is None where the reason is that there is no value.
    """

    path: str
    expected: Any
    actual: Any
    reason: Reason


def matches(expected: Any, actual: Any) -> bool:
    """Tell whether `actual` has everything that `expected` asks for."""
    return next(_walk(expected, actual), None) is None


def equal(left: Any, right: Any) -> bool:
    """Tell whether two JSON values are the same: each has all that the other one has."""
    return matches(left, right) and matches(right, left)


def canonical(value: Any) -> str:
    """Return a text that JSON values share if they are equal."""
    return json.dumps(json.loads(json.dumps(value), parse_float=_number), sort_keys=True)


def _number(digits: str) -> int | float:
    number = float(digits)
    return int(number) if number.is_integer() else number


def mismatches(expected: Any, actual: Any) -> list[Mismatch]:
    """Return every place where `actual` differs from `expected`, in the order of `expected`."""
    return list(_walk(expected, actual))


def value_at(value: Any, parts: Iterable[str | int]) -> Any:
    """Return what names and indices lead to inside of a JSON value, `ABSENT` if nothing is there.

    An index may be written as a text.
    """
    for part in parts:
        if isinstance(value, Mapping):
            value = value.get(str(part), ABSENT)
        elif isinstance(value, list) and _INDEX.fullmatch(str(part)) and int(part) < len(value):
            value = value[int(part)]
        else:
            return ABSENT
    return value


def _walk(expected: Any, actual: Any) -> Iterator[Mismatch]:
    pending: list[tuple[_Path | None, Any, Any]] = [(None, expected, actual)]
    while pending:
        path, want, got = pending.pop()
        if got is ABSENT:
            yield Mismatch(_text(path), want, None, Reason.MISSING)
            continue
        kind = _kind(want)
        if kind != _kind(got):
            yield Mismatch(_text(path), want, got, Reason.TYPE)
        elif kind == "object":
            keys = reversed(list(want))
            pending.extend(((path, key), want[key], got.get(key, ABSENT)) for key in keys)
        elif kind == "array":
            if len(want) != len(got):
                yield Mismatch(_text(path), want, got, Reason.LENGTH)
                continue
            indices = reversed(range(len(want)))
            pending.extend(((path, index), want[index], got[index]) for index in indices)
        elif want != got:
            yield Mismatch(_text(path), want, got, Reason.VALUE)


def _kind(value: Any) -> str:
    """Return the JSON type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case Mapping():
            return "object"
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _text(path: _Path | None) -> str:
    parts: list[str] = []
    while path is not None:
        path, part = path
        plain = isinstance(part, str) and _PLAIN_KEY.fullmatch(part)
        parts.append(f".{part}" if plain else f"[{part!r}]")
    return "".join(reversed(parts)).removeprefix(".")
