"""Equality of JSON values, where Python's own would say that true equals one."""

from __future__ import annotations

from typing import Any


def json_equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same: numbers by value, booleans are no numbers."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(json_equal(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(json_equal, left, right))
    return bool(left == right)
