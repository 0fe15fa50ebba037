"""Walking the plain values of a file that may have any shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kindlm.config.document import Path

Raw = Mapping[str, Any]


def items(raw: Raw, *path: str | int) -> Iterator[tuple[Path, Raw]]:
    """Yield the mappings in a list of the file, with their paths."""
    *parents, last = path
    value: Any = raw
    for part in parents:
        value = value.get(part) if isinstance(value, dict) else None
    found = value.get(last) if isinstance(value, dict) else None
    for index, item in enumerate(found if isinstance(found, list) else ()):
        if isinstance(item, dict):
            yield (*path, index), item


def section(raw: Any, *path: str) -> Raw:
    """Return a mapping of the file, an empty one if there is none."""
    for part in path:
        raw = raw.get(part) if isinstance(raw, dict) else None
    return raw if isinstance(raw, dict) else {}


def expectations(test: Raw) -> Iterator[tuple[Path, Raw]]:
    """Yield the `expect` sections of a test: its own, then those of its conversation."""
    yield ("expect",), section(test, "expect")
    for path, turn in items(test, "conversation"):
        yield (*path, "expect"), section(turn, "expect")


def walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield a value and all that is in it, with paths. The reader has bounded the depth."""
    yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from walk(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from walk(item, (*path, index))


def texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield all texts in a value, with their paths."""
    for place, item in walk(value, path):
        if isinstance(item, str):
            yield place, item
