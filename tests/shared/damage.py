"""Damages answers: leaves out, doubles, moves, wraps or replaces one of their values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values in an answer."""
    members = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in members:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))


def damage(answer: Any, path: tuple[Any, ...], how: str) -> None:
    """Damage the value at a path in place; "Hello" is the message that was sent."""
    *outer, key = path
    for step in outer:
        answer = answer[step]
    match how:
        case "left out":
            del answer[key]
        case "twice" if isinstance(answer, list):
            answer.insert(key, answer[key])
        # What comes before the message that was sent is no answer to it.
        case "last" if isinstance(answer, list) and "Hello" not in json.dumps(answer[key]):
            answer.append(answer.pop(key))
        case "in an object":
            answer[key] = {"payload": answer[key]}
        case "in a list":
            answer[key] = [answer[key]]
        case "as text" if isinstance(answer[key], dict | list):
            answer[key] = json.dumps(answer[key])
        case "null" | "empty" | "a number":
            answer[key] = {"null": None, "empty": "", "a number": 1}[how]


HOW = (
    *("left out", "twice", "last", "in an object", "in a list", "as text"),
    *("null", "empty", "a number"),
)
