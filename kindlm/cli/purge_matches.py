"""What the pattern of `kindlm purge` matches: texts, and names in events, which stay."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Any

from kindlm.patterns import searches

_PATTERN_S = 2.0
"""Seconds that a pattern may take in one text."""

_LEVELS = 3
"""So often JSON may be inside JSON: the body of a request holds what a tool said, and so on."""

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}

_REMEMBERED = 10_000
"""Names: the same ones are in each repeat of a test."""

_EVENTS = "SELECT stream, type, data FROM event_log ORDER BY seq"


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return what tells whether a text matches, as it is or as the JSON in it says it.

    It raises `PatternError` if the pattern can not be used.
    """

    def matches(text: str) -> bool:
        return any(
            searches(pattern, reading, time.monotonic() + _PATTERN_S) for reading in _readings(text)
        )

    return matches


def names_that_match(
    db: sqlite3.Connection, runs: Collection[str] | None, matches: Callable[[str], bool]
) -> dict[tuple[str, str], dict[str, int]]:
    """Return where events themselves hold what matches: it is part of the chain, and stays.

    Args:
        db: A read-only connection.
        runs: Only events of these runs, and what journals note of them; None for all.
        matches: Asked about each string in an event.

    Returns:
        Type of the event and key in it, as in `assertion.evaluated` and `label` → stream → how
        many events.
    """
    chosen = None if runs is None else {*runs}
    matches = lru_cache(_REMEMBERED)(matches)
    found: dict[tuple[str, str], dict[str, int]] = {}
    for stream, kind, text in db.execute(_EVENTS):
        data = json.loads(text)
        if chosen is not None and _run_of(stream, data) not in chosen:
            continue
        for key in {key for key, name in _names(data) if matches(name)}:
            streams = found.setdefault((kind, key), {})
            streams[stream] = streams.get(stream, 0) + 1
    return found


def _run_of(stream: str, data: dict[str, Any]) -> object:
    return stream.removeprefix("run/") if stream.startswith("run/") else data.get("run")


def _names(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the strings in an event with their keys: `tests[].test`; texts are not in it."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, list):
        for item in value:
            yield from _names(item, f"{key}[]")
    elif isinstance(value, dict) and value.keys() != {"$ref"}:
        for name, item in value.items():
            yield from _names(item, f"{key}.{name}" if key else name)


def _readings(text: str) -> Iterator[str]:
    """Yield a text, and what it says once the escapes of JSON are undone."""
    yield text
    for _ in range(_LEVELS):
        unescaped = _ESCAPE.sub(_unescaped, text) if "\\" in text else text
        if unescaped == text:
            return
        # Halves of characters that JSON wrote apart come together again.
        text = unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        yield text


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _CONTROLS.get(escape, escape)
