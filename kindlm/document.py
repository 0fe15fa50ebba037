"""A file as JSON values with their positions, whatever its format.

`yaml_document` and `toml_document` read files into a `Document`, with limits for size and depth.
Values may have any shape: functions that walk them skip values of other types than they look for.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from kindlm.dataclass import dataclass

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64

Path = tuple[str | int, ...]
"""Keys and list indices from the root of the document."""

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the text; lines and columns count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in the text itself; `limit` is set if the text exceeds a limit."""

    message: str
    hint: str
    position: Position | None = None
    path: Path = ()
    limit: bool = False


class RefusedError(Exception):
    """The value at an index of a text is not valid as JSON, or too large."""

    def __init__(self, message: str, hint: str, index: int, *, limit: bool = False) -> None:
        super().__init__(message)
        self.message, self.hint, self.index, self.limit = message, hint, index, limit


def too_deep(index: int, hint: str = "Check for brackets that are never closed") -> RefusedError:
    """Return the error of a value that is nested too deeply."""
    message = f"The file is nested more than {MAX_DEPTH} levels deep"
    return RefusedError(message, hint, index, limit=True)


class SourceText:
    """A text with the positions of its lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(match.end() for match in _LINE_BREAK.finditer(text))]

    def position(self, index: int) -> Position:
        """Return the line and column of a character."""
        line = bisect_right(self._starts, index)
        return Position(line, index - self._starts[line - 1] + 1)

    def line(self, number: int) -> str | None:
        """Return the text of a line without its line break, None if there is no such line."""
        if not 1 <= number <= len(self._starts):
            return None
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[self._starts[number - 1] : end].rstrip("\r\n")


@dataclass(slots=True)
class Node:
    """A value with its index in the text, the indices of its `keys`, and its `children`.

    `empty` is set for a key without a value, and `written` is the path in the file, if known.
    """

    value: Any
    start: int
    keys: dict[str, int] = field(default_factory=dict)
    children: dict[str | int, Node] = field(default_factory=dict)
    empty: bool = False
    written: Path | None = None

    def locate(self, path: Path = ()) -> None:
        """Remember the paths of this value and of those in it, before they move."""
        self.written = path
        for part, child in self.children.items():
            child.locate((*path, part))

    @staticmethod
    def mapping(at: Node, /, **values: Node) -> Node:
        """Return a mapping at the position of another value."""
        node = Node({}, at.start)
        for key, value in values.items():
            node.put(key, value)
        return node

    @staticmethod
    def sequence(at: Node, /, *values: Node) -> Node:
        """Return a list at the position of another value."""
        node = Node([], at.start)
        for value in values:
            node.append(value)
        return node

    def leaf(self, value: Any) -> Node:
        """Return a text, number or boolean at the position of this value."""
        return Node(value, self.start)

    def put(self, key: str | int, node: Node, start: int | None = None) -> None:
        """Put a value into a mapping or list; `start` is the index of the key."""
        self.value[key] = node.value
        self.children[key] = node
        if isinstance(key, str):
            self.keys.setdefault(key, node.start if start is None else start)

    def append(self, node: Node) -> None:
        """Add a value to a list."""
        self.children[len(self.value)] = node
        self.value.append(node.value)

    def take(self, key: str) -> Node:
        """Remove a value from a mapping and return it."""
        del self.value[key]
        return self.children.pop(key)

    def child(self, key: str) -> Node | None:
        """Return the value at a key, None if there is none or this is not a mapping."""
        return self.children.get(key) if isinstance(self.value, dict) else None

    def entries(self, key: str) -> dict[int, Node]:
        """Return the mappings in the list at a key, by their indices."""
        node = self.child(key)
        if node is None or not isinstance(node.value, list):
            return {}
        return {at: node.children[at] for at, it in enumerate(node.value) if isinstance(it, dict)}


_NO_TEXT = SourceText("")


@dataclass(frozen=True, slots=True)
class Document:
    """A file that was read. `value` is None if it is empty or unreadable.

    `readable` is False if a syntax error or a limit stopped the reading. `root` is the value with
    the positions of everything in it.
    """

    value: Any = None
    problems: tuple[Problem, ...] = ()
    readable: bool = True
    _text: SourceText = _NO_TEXT
    root: Node | None = None

    @staticmethod
    def unreadable(text: SourceText, problem: Problem | RefusedError) -> Document:
        """Return the document of a text that cannot be read."""
        if isinstance(problem, RefusedError):
            at, limit = text.position(problem.index), problem.limit
            problem = Problem(problem.message, problem.hint, at, limit=limit)
        return Document(None, (problem,), False, text)

    def position(self, path: Path, *, key: bool = False) -> Position:
        """Return the position of a value or its key; for an absent one, that of its parent."""
        if (node := self.root) is None:
            return Position(1, 1)
        place = node.start
        for number, part in enumerate(path):
            if (child := node.children.get(part)) is None:
                # Absent, or a part of a schema's path that is not in the document.
                return self._text.position(place)
            at_key = key and number == len(path) - 1
            last_is_absent = number < len(path) - 1 and path[number + 1] not in child.children
            if isinstance(part, str) and (at_key or last_is_absent or child.empty):
                place = node.keys[part]
            else:
                place = child.start
            node = child
        return self._text.position(place)

    def line(self, number: int) -> str | None:
        """Return the text of a line without its line break, None if there is no such line."""
        return self._text.line(number)

    def part(self, part: str | int) -> Document:
        """Return a value in the root as a separate document, without problems."""
        assert self.root is not None, "only a readable document has parts"
        node = self.root.children[part]
        return Document(node.value, (), self.readable, self._text, node)


def dotted(path: Path) -> str:
    """Return a path as users write it: `tests[2].expect.output`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def cases_of(documents: Document) -> list[Document]:
    """Return the cases in a list of documents: a document is a case or a list of cases."""
    found: list[Document] = []
    for index, value in enumerate(documents.value or ()):
        document = documents.part(index)
        if isinstance(value, list):
            found += [document.part(item) for item in range(len(value))]
        elif value is not None:
            found.append(document)
    return found


def read_text(data: bytes) -> SourceText | Document:
    """Return the text of a file, or a document with a problem if it is too large or not UTF-8."""
    if len(data) > MAX_BYTES:
        message = f"The file is larger than {MAX_BYTES // 1024**2} MiB"
        hint = "Split the suite, or move long texts and rows into files of their own"
        return Document.unreadable(_NO_TEXT, Problem(message, hint, limit=True))
    hint = "Save the file with the encoding UTF-8"
    if not (encoding := json.detect_encoding(data[:4])).startswith("utf-8"):
        problem = Problem(f"The file is {encoding[:6].upper()}, not UTF-8", hint, Position(1, 1))
        return Document.unreadable(_NO_TEXT, problem)
    try:
        return SourceText(data.decode().removeprefix(_BOM))
    except UnicodeDecodeError as error:
        byte = f"byte {error.start} (0x{data[error.start]:02x})"
        before = data[: error.start].decode().removeprefix(_BOM)
        text = SourceText(data.decode(errors="replace").removeprefix(_BOM))
        position = text.position(len(before))
        problem = Problem(f"The file is not UTF-8: {byte} is not valid", hint, position)
        return Document.unreadable(text, problem)


Raw = Mapping[str, Any]


def items(raw: Raw, *path: str) -> Iterator[tuple[Path, Raw]]:
    """Yield the mappings in the list at a path, with their paths."""
    found = section(raw, *path[:-1]).get(path[-1])
    for index, item in enumerate(found if isinstance(found, list) else ()):
        if isinstance(item, dict):
            yield (*path, index), item


def section(raw: Any, *path: str) -> Raw:
    """Return the mapping at a path, {} if there is none."""
    for part in path:
        raw = raw.get(part) if isinstance(raw, dict) else None
    return raw if isinstance(raw, dict) else {}


def prompts_of(test: Raw) -> dict[Path, str]:
    """Return the names of the prompts of a test, by their paths in it."""
    several = test.get("prompts")
    named: dict[Path, Any] = {("prompt",): test.get("prompt")}
    if isinstance(several, list):
        named |= {("prompts", at): name for at, name in enumerate(several)}
    return {place: name for place, name in named.items() if isinstance(name, str)}


def expectations(test: Raw) -> Iterator[tuple[Path, Raw]]:
    """Yield the `expect` sections of a test: its own, then those of its conversation."""
    yield ("expect",), section(test, "expect")
    for path, turn in items(test, "conversation"):
        yield (*path, "expect"), section(turn, "expect")


def walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield a value and all values in it, with their paths, in order and without recursion."""
    pending = [(path, value)]
    while pending:
        path, value = pending.pop()
        yield path, value
        parts: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, dict | list):
            parts = value.items() if isinstance(value, dict) else enumerate(value)
        pending.extend(reversed([((*path, key), part) for key, part in parts]))


def texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield all text in a value, with its paths."""
    for place, item in walk(value, path):
        if isinstance(item, str):
            yield place, item
