"""A file as JSON values that know where they stand, whatever its format.

`yaml_document` and `toml_document` read files into a `Document`. Size, depth, nodes and characters
are bounded, so reading always ends. Values may have any shape; the functions below walk them and
ignore values of another shape than they look for.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from kindlm.dataclass import dataclass

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64

Path = tuple[str | int, ...]
"""Keys and list positions from the top of the document."""

_LINE_BREAK = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the text; lines and columns count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with the text itself. `limit` tells a refused size from a syntax error."""

    message: str
    hint: str
    position: Position | None = None
    path: Path = ()
    limit: bool = False


class RefusedError(Exception):
    """JSON cannot hold what stands at an index of a text, or it is too large."""

    def __init__(self, message: str, hint: str, index: int, *, limit: bool = False) -> None:
        super().__init__(message)
        self.message, self.hint, self.index, self.limit = message, hint, index, limit


def too_deep(index: int, hint: str = "Check for brackets that are never closed") -> RefusedError:
    """Return the error of a value in too many others."""
    message = f"The file is nested more than {MAX_DEPTH} levels deep"
    return RefusedError(message, hint, index, limit=True)


class SourceText:
    """A text that knows where its lines begin."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(match.end() for match in _LINE_BREAK.finditer(text))]

    def position(self, index: int) -> Position:
        """Return the place of a character."""
        line = bisect_right(self._starts, index)
        return Position(line, index - self._starts[line - 1] + 1)

    def line(self, number: int) -> str | None:
        """Return the text of a line without its end, None if there is no such line."""
        if not 1 <= number <= len(self._starts):
            return None
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[self._starts[number - 1] : end].rstrip("\r\n")


@dataclass(slots=True)
class Node:
    """A value with its place; `keys` and `children` follow the path into it.

    `empty` is a plain scalar that is not there: a key with nothing behind it.
    """

    value: Any
    start: int
    keys: dict[str, int] = field(default_factory=dict)
    children: dict[str | int, Node] = field(default_factory=dict)
    empty: bool = False

    @staticmethod
    def mapping(at: Node, /, **values: Node) -> Node:
        """Return a mapping that stands where another value does."""
        node = Node({}, at.start)
        for key, value in values.items():
            node.put(key, value)
        return node

    @staticmethod
    def sequence(at: Node, /, *values: Node) -> Node:
        """Return a list that stands where another value does."""
        parts: dict[str | int, Node] = dict(enumerate(values))
        return Node([each.value for each in values], at.start, children=parts)

    def leaf(self, value: Any) -> Node:
        """Return a text, number or boolean that stands where this value does."""
        return Node(value, self.start)

    def put(self, key: str | int, node: Node, start: int | None = None) -> None:
        """Put a value into a mapping or list; `start` is where the key is written."""
        self.value[key] = node.value
        self.children[key] = node
        if isinstance(key, str):
            self.keys.setdefault(key, node.start if start is None else start)

    def take(self, key: str) -> Node:
        """Take a value out of a mapping."""
        del self.value[key]
        return self.children.pop(key)

    def child(self, key: str) -> Node | None:
        """Return what a mapping has at a key, None if it has nothing or is none."""
        return self.children.get(key) if isinstance(self.value, dict) else None

    def entries(self, key: str) -> dict[int, Node]:
        """Return the mappings in the list that a mapping has at a key, by their positions."""
        node = self.child(key)
        if node is None or not isinstance(node.value, list):
            return {}
        return {at: node.children[at] for at, it in enumerate(node.value) if isinstance(it, dict)}


_NO_TEXT = SourceText("")


@dataclass(frozen=True, slots=True)
class Document:
    """What was read. `value` is None when nothing could be, or the file is empty.

    `readable` is False when a syntax error or a limit stopped the reading. `root` is the value with
    the places of all that is in it.
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
        """Return where a value stands, or its key; for what is absent, its nearest parent's."""
        node = self.root
        if node is None:
            return Position(1, 1)
        place = node.start
        for number, part in enumerate(path):
            child = node.children.get(part)
            if child is None:
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
        """Return the text of a line, without its end."""
        return self._text.line(number)

    def part(self, part: str | int) -> Document:
        """Return a value of a mapping or list as a document of its own, without problems."""
        assert self.root is not None, "only what was read has parts"
        node = self.root.children[part]
        return Document(node.value, (), self.readable, self._text, node)


def dotted(path: Path) -> str:
    """Return a path as users write it: `tests[2].expect.output`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def cases_of(documents: Document) -> list[Document]:
    """Return the cases in a list of documents: each that is not a list, and the items of those."""
    found: list[Document] = []
    for index, value in enumerate(documents.value or ()):
        document = documents.part(index)
        if isinstance(value, list):
            found += [document.part(item) for item in range(len(value))]
        elif value is not None:
            # Nothing is between two lines of `---`.
            found.append(document)
    return found


def read_text(data: bytes) -> SourceText | Document:
    """Return the text of a file; a document with a problem if it is too large, or no UTF-8."""
    if len(data) > MAX_BYTES:
        problem = Problem(
            f"The file is larger than {MAX_BYTES // 1024**2} MiB",
            "Split the suite, or move long texts and rows into files of their own",
            limit=True,
        )
        return Document.unreadable(_NO_TEXT, problem)
    if not (encoding := json.detect_encoding(data[:4])).startswith("utf-8"):
        hint = "Save the file with the encoding UTF-8"
        problem = Problem(f"The file is {encoding[:6].upper()}, not UTF-8", hint, Position(1, 1))
        return Document.unreadable(_NO_TEXT, problem)
    try:
        return SourceText(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig")
        problem = Problem(
            f"The file is not UTF-8: byte {error.start} (0x{data[error.start]:02x}) is not valid",
            "Save the file with the encoding UTF-8",
            SourceText(before).position(len(before)),
        )
        return Document.unreadable(SourceText(data.decode("utf-8-sig", errors="replace")), problem)


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


def prompts_of(test: Raw) -> dict[Path, str]:
    """Return the names of the prompts of a test, by their places in it."""
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
