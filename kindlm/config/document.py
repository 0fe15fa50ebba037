"""kindlm.yaml as text: read safely, into JSON values that know where they stand.

PyYAML's parser gives events; values and positions are built from those here, since its own
constructors follow YAML 1.1, keep the last of two equal keys, and crash on deep nesting. Whatever
the bytes are, reading ends: depth, nodes (aliases expanded) and characters are bounded.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from kindlm.config.scalars import TAG_PREFIX, ScalarError, resolve_plain, resolve_tagged
from kindlm.config.syntax import explain_syntax

__all__ = ["MAX_BYTES", "Document", "Path", "Position", "Problem", "dotted", "read_document"]

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
MAX_NODES = 200_000
MAX_CHARACTERS = 4 * MAX_BYTES

Path = tuple[str | int, ...]
"""Keys and list positions from the top of the document."""

# c-printable of YAML 1.2. U+FDD0 is left out too: it marks placeholders in rendered prompts (see
# `interpolation`), and as a noncharacter it has no business in a text.
_FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufdcf\ufdd1-\ufffd\U00010000-\U0010ffff]"
)
_NO_CHARACTER = re.compile("[\ud800-\udfff\ufdd0]")
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_LOADER: type[Any] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


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


@dataclass(slots=True)
class _Node:
    """A value with its place; `keys` and `children` follow the path into it.

    `nodes` and `characters` are its size with all aliases expanded.
    """

    value: Any
    start: int
    keys: dict[str, int] = field(default_factory=dict)
    children: dict[str | int, _Node] = field(default_factory=dict)
    nodes: int = 1
    characters: int = 0
    empty: bool = False


class _RefusedError(Exception):
    """Reading cannot go on."""

    def __init__(self, message: str, hint: str, index: int, *, limit: bool = False) -> None:
        super().__init__(message)
        self.message, self.hint, self.index, self.limit = message, hint, index, limit


class _Text:
    """The text and where its lines begin."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(match.end() for match in _LINE_BREAK.finditer(text))]

    def position(self, index: int) -> Position:
        line = bisect_right(self._starts, index)
        return Position(line, index - self._starts[line - 1] + 1)

    def line(self, number: int) -> str | None:
        if not 1 <= number <= len(self._starts):
            return None
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[self._starts[number - 1] : end].rstrip("\r\n")


@dataclass(frozen=True, slots=True)
class Document:
    """What was read. `value` is None when nothing could be, or the file is empty.

    `readable` is False when a syntax error or a limit stopped the reading.
    """

    value: Any
    problems: tuple[Problem, ...]
    readable: bool
    _text: _Text
    _root: _Node | None

    def position(self, path: Path, *, key: bool = False) -> Position:
        """Return where a value stands, or its key; for what is absent, its nearest parent's."""
        node, place = self._root, 0
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


def dotted(path: Path) -> str:
    """Return a path as users write it: `tests[2].expect.output`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read_document(data: bytes) -> Document:
    """Read a YAML 1.2 document. Never raises: what is wrong is in `problems`."""
    if len(data) > MAX_BYTES:
        problem = Problem(
            f"The file is larger than {MAX_BYTES // 1024**2} MiB",
            "Split the suite, or move long texts and rows into files of their own",
            limit=True,
        )
        return _unreadable(_Text(""), problem)
    try:
        text = _Text(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        problem = Problem(
            f"The file is not UTF-8: byte {error.start} (0x{data[error.start]:02x}) is not valid",
            "Save the file with the encoding UTF-8",
            _Text(data[: error.start].decode("utf-8-sig")).position(
                len(data[: error.start].decode("utf-8-sig"))
            ),
        )
        return _unreadable(_Text(data.decode("utf-8-sig", errors="replace")), problem)
    return _read_text(text)


def _read_text(text: _Text) -> Document:
    forbidden = _FORBIDDEN.search(text.text)
    if forbidden:
        problem = Problem(
            f"The character U+{ord(forbidden[0]):04X} is not allowed in YAML",
            'Remove it, or write it as an escape in double quotes, such as "\\u0007"',
            text.position(forbidden.start()),
        )
        return _unreadable(text, problem)
    builder = _Builder(text)
    try:
        root = builder.build()
    except _RefusedError as refused:
        position = text.position(refused.index)
        problem = Problem(refused.message, refused.hint, position, limit=refused.limit)
        return _unreadable(text, problem)
    except yaml.MarkedYAMLError as error:
        return _unreadable(text, _syntax_problem(text, error))
    value = None if root is None else root.value
    return Document(value, tuple(builder.problems), True, text, root)


def _unreadable(text: _Text, problem: Problem) -> Document:
    return Document(None, (problem,), False, text, None)


def _syntax_problem(text: _Text, error: yaml.MarkedYAMLError) -> Problem:
    context: Any = error.context_mark
    mark: Any = error.problem_mark or context
    index = min(mark.index, len(text.text)) if mark else 0
    begin = text.position(context.index) if context else None
    explained = explain_syntax(error, text.text[index : index + 1], begin.line if begin else None)
    # A quote or bracket that is never closed is wrong where it opens, not where the file ends.
    position = begin if explained.at_context and begin else text.position(index)
    return Problem(explained.message, explained.hint, position)


class _Builder:
    """Builds nodes from the parser's events. Recursion is bounded by `MAX_DEPTH`."""

    def __init__(self, text: _Text) -> None:
        self._text = text
        self._events: Iterator[Any] = yaml.parse(text.text, Loader=_LOADER)
        self._anchors: dict[str, _Node | None] = {}
        self.problems: list[Problem] = []

    def build(self) -> _Node | None:
        root: _Node | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise _RefusedError(
                        "The file holds more than one document",
                        "Remove the line '---' and put each suite into a file of its own",
                        _start(event),
                    )
                root = self._node(next(self._events), ())
        return root

    def _node(self, event: Any, path: Path) -> _Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.anchor:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event)
        elif len(path) >= MAX_DEPTH:
            raise _RefusedError(
                f"The file is nested more than {MAX_DEPTH} levels deep",
                "Check for brackets that are never closed",
                _start(event),
                limit=True,
            )
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(event, path)
        else:
            node = self._mapping(event, path)
        if event.anchor:
            self._anchors[event.anchor] = node
        self._check_size(node, _start(event))
        return node

    def _alias(self, event: Any) -> _Node:
        index = _start(event)
        if event.anchor not in self._anchors:
            known = ", ".join(f"*{name}" for name in self._anchors) or "none"
            raise _RefusedError(
                f"The alias *{event.anchor} refers to nothing",
                f"Anchors before this line: {known}. A text that begins with * needs quotes",
                index,
            )
        node = self._anchors[event.anchor]
        if node is None:
            raise _RefusedError(
                f"The alias *{event.anchor} stands inside what it refers to",
                "A value cannot contain itself",
                index,
            )
        return node

    def _scalar(self, event: Any) -> _Node:
        index = _start(event)
        text: str = event.value
        plain, quoted = event.implicit
        value: Any
        try:
            if event.tag == "!" or (quoted and not plain):
                value = text
            elif plain:
                value = resolve_plain(text)
            else:
                value = resolve_tagged(event.tag, text)
        except ScalarError as error:
            raise _RefusedError(
                f"{str(error)[0].upper()}{str(error)[1:]}", "Put it in quotes to mean text", index
            ) from None
        _check_characters(text, index)
        empty = plain and not text
        return _Node(value, index, characters=len(text), empty=empty)

    def _sequence(self, event: Any, path: Path) -> _Node:
        self._check_tag(event, "seq")
        values: list[Any] = []
        node = _Node(values, _start(event))
        for item in self._events:
            if isinstance(item, yaml.SequenceEndEvent):
                break
            child = self._node(item, (*path, len(values)))
            self._adopt(node, len(values), child)
            values.append(child.value)
        return node

    def _mapping(self, event: Any, path: Path) -> _Node:
        self._check_tag(event, "map")
        values: dict[str, Any] = {}
        node = _Node(values, _start(event))
        for item in self._events:
            if isinstance(item, yaml.MappingEndEvent):
                break
            key = self._key(item)
            child = self._node(next(self._events), (*path, key))
            if key in values:
                self._duplicate(key, _start(item), node.keys[key], path)
                continue
            node.keys[key] = _start(item)
            self._adopt(node, key, child)
            values[key] = child.value
        return node

    def _key(self, event: Any) -> str:
        index = _start(event)
        if isinstance(event, yaml.AliasEvent):
            node = self._alias(event)
            if not node.children and isinstance(node.value, str):
                return node.value
        elif isinstance(event, yaml.ScalarEvent):
            if event.value == "<<" and event.implicit[0]:
                raise _RefusedError(
                    "Merge keys (<<) are not part of YAML 1.2",
                    "Write the keys out; an alias (*name) can stand for a whole value",
                    index,
                )
            if event.anchor:
                self._anchors[event.anchor] = _Node(event.value, index)
            _check_characters(event.value, index)
            # The text as written: JSON has no other keys.
            return str(event.value)
        raise _RefusedError("A key must be a plain text", "Put the key in quotes", index)

    def _duplicate(self, key: str, index: int, first: int, path: Path) -> None:
        line = self._text.position(first).line
        self.problems.append(
            Problem(
                f'The key "{key}" is there twice: first on line {line}',
                "Remove one of them",
                self._text.position(index),
                (*path, key),
            )
        )

    def _adopt(self, parent: _Node, part: str | int, child: _Node) -> None:
        parent.children[part] = child
        parent.nodes += child.nodes
        parent.characters += child.characters
        self._check_size(parent, child.start)

    def _check_size(self, node: _Node, index: int) -> None:
        if node.nodes > MAX_NODES or node.characters > MAX_CHARACTERS:
            raise _RefusedError(
                f"The file holds more than {MAX_NODES:,} values, aliases counted as often as used",
                "Use fewer aliases, or split the suite",
                index,
                limit=True,
            )

    def _check_tag(self, event: Any, kind: str) -> None:
        if event.tag not in (None, "!", TAG_PREFIX + kind):
            tag = event.tag.replace(TAG_PREFIX, "!!")
            raise _RefusedError(f"The tag {tag} is not supported", "Remove the tag", _start(event))


def _check_characters(text: str, index: int) -> None:
    if _NO_CHARACTER.search(text):
        raise _RefusedError(
            "An escape stands for something that is no character",
            "Use the escape of a whole character, such as \\U0001F600",
            index,
        )


def _start(event: Any) -> int:
    """Return where an event begins; the parser always says so."""
    index: int = event.start_mark.index
    return index
