"""Numbers that an agent reports about its answer, by name: a confidence, a count of retries."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["read_numbers"]

_MAX_NUMBERS = 50
_MAX_NAME = 100


def read_numbers(value: Any) -> dict[str, float]:
    """Return the numbers of a reply, of its metadata, and of `metrics` in either.

    Where a name is in several of them, the first place counts. Truth values are no numbers, and
    neither is what is not finite. A reply is read up to 50 of them.
    """
    found: dict[str, float] = {}
    for part in _places(value):
        for name, number in part.items():
            if len(found) < _MAX_NUMBERS and len(name) <= _MAX_NAME and _is_number(number):
                found.setdefault(name, number)
    return found


def _places(value: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(value, dict):
        return
    parts = [value, value.get("metadata"), value.get("meta")]
    objects = [part for part in parts if isinstance(part, dict)]
    yield from (part["metrics"] for part in objects if isinstance(part.get("metrics"), dict))
    yield from objects


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
