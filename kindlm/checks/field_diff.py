"""Compares two JSON values field by field, for drift that is counted and not judged.

A field is a path: names joined by dots, indices of arrays as `items.0.id` or `items[0].id`, and a
name that holds dots as `['a.b']`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kindlm.matching import equal

__all__ = ["ABSENT", "Field", "compare_fields"]

ABSENT: Final = object()
"""Stands for the value of a field that is not there."""

_Part: TypeAlias = str | int
_Path: TypeAlias = tuple[_Part, ...]

_INDEX = re.compile(r"[0-9]{1,9}")
_PARTS = re.compile(r"\.?\[([0-9]{1,9})\]|\.?\['([^']*)'\]|\.?([^.\[\]]+)")
_PLAIN = re.compile(r"[^.\[\]']+")


@dataclass(frozen=True, slots=True)
class Field:
    """A field on both sides; `ABSENT` where there is none."""

    path: str
    baseline: Any
    current: Any

    @property
    def differs(self) -> bool:
        """Whether the values are not the same as JSON; absent on both sides is the same."""
        if self.baseline is ABSENT or self.current is ABSENT:
            return self.baseline is not self.current
        return not equal(self.baseline, self.current)

    @property
    def unknown(self) -> bool:
        """Whether neither side has it."""
        return self.baseline is ABSENT and self.current is ABSENT


def compare_fields(baseline: Any, current: Any, fields: Iterable[str] | None) -> list[Field]:
    """Return the fields to compare, or without `fields` all leaves of the baseline.

    A leaf is a value that holds no others: also an empty object or array.
    """
    if fields is None:
        paths = [(_text(path), path) for path in _leaves(baseline)]
    else:
        paths = [(text, _parsed(text)) for text in dict.fromkeys(fields)]
    return [
        Field(text, _value_at(baseline, path), _value_at(current, path)) for text, path in paths
    ]


def _parsed(text: str) -> _Path:
    """Return the parts of a path; a text that is none is one name."""
    parts: list[_Part] = []
    end = 0
    while end < len(text):
        match = _PARTS.match(text, end)
        if match is None or (end == 0 and text.startswith(".")):
            return (text,)
        index, quoted, plain = match.groups()
        if index is not None:
            parts.append(int(index))
        else:
            parts.append(quoted if quoted is not None else plain)
        end = match.end()
    return tuple(parts)


def _text(path: _Path) -> str:
    """Return a path as a user would write it; the whole value is `$`."""
    text = "" if path else "$"
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"['{part}']"
    return text


def _leaves(value: Any) -> Iterator[_Path]:
    pending: list[tuple[_Path, Any]] = [((), value)]
    while pending:
        path, value = pending.pop()
        parts: Sequence[tuple[_Part, Any]] = ()
        if isinstance(value, Mapping):
            parts = list(value.items())
        elif isinstance(value, list):
            parts = list(enumerate(value))
        if not parts:
            yield path
        pending.extend(((*path, part), child) for part, child in reversed(parts))


def _value_at(value: Any, path: _Path) -> Any:
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(str(part), ABSENT)
        elif isinstance(value, list) and _INDEX.fullmatch(str(part)) and int(part) < len(value):
            value = value[int(part)]
        else:
            return ABSENT
    return value
