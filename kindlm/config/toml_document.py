"""Reads a TOML file as a `Document`, whose values have positions.

The parser of the standard library returns no positions. This module finds those of tables and keys
at the beginning of a line. All that is inside an inline value has the position of its key.
"""

from __future__ import annotations

import math
import re
import tomllib
from datetime import date, time
from typing import Any

from kindlm.document import (
    MAX_DEPTH,
    Document,
    Node,
    Path,
    Position,
    Problem,
    RefusedError,
    read_text,
    too_deep,
)

_AT = re.compile(r"line (\d+), column (\d+)\)$")
_KEY_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEY = rf"{_KEY_PART}(?:[ \t]*\.[ \t]*{_KEY_PART})*"
_LINE = re.compile(rf"^[ \t]*(?:(\[\[?)[ \t]*({_KEY})[ \t]*\]|({_KEY})[ \t]*=)", re.MULTILINE)
"""The line of a table, with its brackets and its name, or of a key."""
_BLOCK = re.compile(r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'', re.DOTALL)
"""A text of several lines."""
_QUOTES = 'Strings need quotes: key = "value"'
_NO_CHARACTER = "\ufdd0"


def read_toml(data: bytes) -> Document:
    """Read a TOML file as a list of one document. Never raises: errors are its `problems`."""
    text = read_text(data)
    if isinstance(text, Document):
        return text
    places: dict[Path, int] = {(): 0}
    try:
        value = tomllib.loads(text.text)
        places |= _places(text.text)
        root = _node(value, (), 0, places)
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).partition(" (at ")
        at = _AT.match(place)
        position = Position(int(at[1]), int(at[2])) if at else text.position(len(text.text))
        hint = _QUOTES if message == "Invalid value" else "Fix the line: https://toml.io"
        problem = Problem(f"TOML syntax error: {message}", hint, position)
        return Document.unreadable(text, problem)
    except ValueError as error:
        # Such as a number with too many digits.
        problem = Problem(f"The file cannot be read: {error}", "Fix the value")
        return Document.unreadable(text, problem)
    except (RecursionError, RefusedError) as error:
        refused = error if isinstance(error, RefusedError) else too_deep(0)
        return Document.unreadable(text, refused)
    return Document([root.value], (), True, text, Node([root.value], 0, children={0: root}))


def _node(value: Any, path: Path, start: int, places: dict[Path, int]) -> Node:
    start = places.get(path, start)
    if len(path) > MAX_DEPTH:
        raise too_deep(start)
    if isinstance(value, dict):
        node = Node({}, start)
        for key, item in value.items():
            at = (*path, key)
            node.put(key, _node(item, at, start, places), places.get(at, start))
        return node
    if isinstance(value, list):
        node = Node([], start)
        for number, item in enumerate(value):
            node.append(_node(item, (*path, number), start, places))
        return node
    if isinstance(value, float) and not math.isfinite(value):
        message = "The file contains a number that JSON cannot represent"
        raise RefusedError(message, "Put it in quotes", start)
    if isinstance(value, str) and _NO_CHARACTER in value:
        raise RefusedError("An escape does not stand for a character", "Remove the escape", start)
    return Node(value.isoformat() if isinstance(value, date | time) else value, start)


def _places(text: str) -> dict[Path, int]:
    """Return the indices at which the tables and keys of a valid TOML text begin, by path."""
    places: dict[Path, int] = {}
    tables: dict[Path, int] = {}
    table: Path = ()
    # Lines of a text are no keys.
    bare = _BLOCK.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for line in _LINE.finditer(bare):
        brackets, name, key = line.groups()
        names = _names(name or key)
        if brackets == "[[":
            several = _in_last(names[:-1], tables) + names[-1:]
            tables[several] = tables.get(several, -1) + 1
        if brackets:
            path = table = _in_last(names, tables)
        else:
            path = (*table, *names)
        # Paths above it may have no line of their own.
        for length in range(1, len(path) + 1):
            places.setdefault(path[:length], line.start(2 if brackets else 3))
    return places


def _in_last(names: Path, tables: dict[Path, int]) -> Path:
    """Return the path of some names: in a list of tables, that of the last table."""
    path: Path = ()
    for name in names:
        path = (*path, name)
        if path in tables:
            path = (*path, tables[path])
    return path


def _names(key: str) -> Path:
    value: Any = tomllib.loads(f"{key} = 0")
    names: Path = ()
    while isinstance(value, dict):
        (name, value), *_ = value.items()
        names = (*names, name)
    return names
