"""Reads YAML 1.2 as a `Document`.

It builds values from the events of PyYAML's parser, since PyYAML's constructors follow YAML 1.1,
keep the last of two equal keys, and crash on deep nesting. Depth, nodes (counting each use of an
alias) and characters are limited.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from kindlm.dataclass import replace
from kindlm.document import (
    MAX_DEPTH,
    Document,
    Node,
    Path,
    Problem,
    RefusedError,
    SourceText,
    read_text,
    too_deep,
)

MAX_NODES = 200_000
MAX_CHARACTERS = 4 * 1024 * 1024

_TAG_PREFIX = "tag:yaml.org,2002:"
_LOADER: type[Any] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader

# All but `c-printable` of YAML 1.2, and U+FDD0, a noncharacter that marks placeholders in rendered
# prompts (see `interpolation`).
_FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufdcf\ufdd1-\ufffd\U00010000-\U0010ffff]"
)
_PLACEHOLDER = re.compile(r"\{\{[^{}\n]*\}\}")
_NO_CHARACTER = re.compile("[\ud800-\udfff\ufdd0]")


def read_document(data: bytes) -> Document:
    """Read a YAML 1.2 document. It never raises: errors are in `problems`."""
    documents = read_documents(data, only_one=True)
    if not documents.readable:
        return documents
    if not documents.value:
        return replace(documents, value=None, root=None)
    return replace(documents.part(0), problems=documents.problems)


def read_documents(data: bytes, *, merges: bool = False, only_one: bool = False) -> Document:
    """Read all documents of a YAML text as a list. It never raises: errors are in `problems`.

    With `merges`, it follows merge keys (`<<`), which YAML 1.2 does not have.
    """
    text = read_text(data)
    if isinstance(text, Document):
        return text
    builder = _Builder(text, merges=merges)
    try:
        if forbidden := _FORBIDDEN.search(text.text):
            message = f"The character U+{ord(forbidden[0]):04X} is not allowed in YAML"
            hint = 'Remove it, or write it as an escape in double quotes, such as "\\u0007"'
            raise RefusedError(message, hint, forbidden.start())  # noqa: TRY301 - as other faults
        root = builder.build(only_one=only_one)
    except RefusedError as refused:
        return Document.unreadable(text, refused)
    except yaml.MarkedYAMLError as error:
        return Document.unreadable(text, builder.syntax_problem(error))
    return Document(root.value, tuple(builder.problems), True, text, root)


class _Builder:
    """Builds nodes from the parser's events, with recursion limited by `MAX_DEPTH`."""

    def __init__(self, text: SourceText, *, merges: bool = False) -> None:
        self._text = text
        self._merges = merges
        # Like `yaml.parse`, without a check before each event.
        self._events: Iterator[Any] = iter(_LOADER(text.text).get_event, None)
        self._anchors: dict[str, Node | None] = {}
        self._quoted: Any = None
        self._nodes = self._characters = 0
        self.problems: list[Problem] = []

    def build(self, *, only_one: bool) -> Node:
        """Return the list of all documents of the text.

        Raises:
            RefusedError: A document is not valid as JSON, or too large.
            yaml.MarkedYAMLError: The text is not YAML.
        """
        root = Node([], 0)
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root.value and only_one:
                    hint = "Remove the line '---' and put each suite into a file of its own"
                    message = "The file contains more than one document"
                    raise RefusedError(message, hint, _start(event))
                # An anchor is valid within its document.
                self._anchors.clear()
                root.append(self._node(next(self._events), ()))
        return root

    def syntax_problem(self, error: yaml.MarkedYAMLError) -> Problem:
        """Return an error of PyYAML's parser in words for the author of a configuration."""
        text = self._text
        context: Any = error.context_mark
        mark: Any = error.problem_mark or context
        index = min(mark.index, len(text.text)) if mark else 0
        place = text.position(index)
        begin = text.position(context.index) if context else place
        problem, character = error.problem or "", text.text[index : index + 1]
        opener = _UNCLOSED.get(error.context or "")
        if "exceeded maximum nesting depth" in problem:
            # libyaml's scanner is ahead of its parser, and reaches its limit before MAX_DEPTH.
            refused = too_deep(index)
            return Problem(refused.message, refused.hint, place, limit=True)
        if (quoted := self._quoted_before(index)) is not None:
            line = text.position(quoted).line
            message = f"Text follows the end of the quote that opens on line {line}"
            hint = f"Close the quote on line {line}, or double the quotes inside single ones and"
            hint += ' write \\" inside double ones'
        elif opener == "quote" and "end of stream" in problem:
            # The error is where the quote opens, not where the file ends.
            return Problem("A quote is never closed", "Add the closing quote", begin)
        elif opener in ("[", "{"):
            message = f"A '{opener}' that opens on line {begin.line} is not closed"
            closer = "]" if opener == "[" else "}"
            hint = f"Add the '{closer}', or a ',' between two entries"
        elif "tab character" in problem or ("cannot start any" in problem and character == "\t"):
            message = "A tab is used for indentation"
            hint = "Indent with spaces: YAML allows no tabs there"
        elif "cannot start any token" in problem:
            message = f"A value cannot begin with '{character}'"
            hint = "Put the value in quotes"
        else:
            message = f"YAML syntax error: {problem or 'the text cannot be read'}"
            hint = "Check the indentation, quotes and brackets of this line and the one before"
            known = (words for part, words in _SYNTAX.items() if part in problem)
            message, hint = next(known, (message, hint))
        return Problem(message, hint, place)

    def _quoted_before(self, index: int) -> int | None:
        """Return the start of a quoted text that ends directly before `index`, or None."""
        if self._quoted is None:
            return None
        end: int = self._quoted.end_mark.index
        between = self._text.text[end:index]
        is_next = end <= index and not between.strip() and "\n" not in between
        return _start(self._quoted) if is_next else None

    def _node(self, event: Any, path: Path) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, len(path))
        if event.tag is not None:
            message = f"The tag {event.tag.replace(_TAG_PREFIX, '!!')} is not supported"
            raise RefusedError(message, "Remove it; quote what is text", _start(event))
        if event.anchor:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event)
        elif len(path) >= MAX_DEPTH:
            raise too_deep(_start(event))
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(event, path)
        else:
            node = self._mapping(event, path)
        if event.anchor:
            self._anchors[event.anchor] = node
        self._count(node, _start(event))
        return node

    def _alias(self, event: Any, depth: int) -> Node:
        index = _start(event)
        if event.anchor not in self._anchors:
            known = ", ".join(f"*{name}" for name in self._anchors) or "none"
            hint = f"Anchors before this line: {known}. Quote text that begins with *"
            raise RefusedError(f"The alias *{event.anchor} refers to nothing", hint, index)
        if (node := self._anchors[event.anchor]) is None:
            message = f"The alias *{event.anchor} is inside the value that it refers to"
            raise RefusedError(message, "A value cannot contain itself", index)
        return self._copy(node, index, depth)

    def _copy(self, node: Node, index: int, depth: int) -> Node:
        """Return a copy: placeholders in it are resolved separately."""
        copy = replace(node, keys=dict(node.keys), children={})
        self._count(copy, index)
        if isinstance(node.value, dict | list):
            if depth >= MAX_DEPTH:
                raise too_deep(index, "Write out what the aliases stand for, with fewer levels")
            copy.value = {} if isinstance(node.value, dict) else [None] * len(node.value)
            for part, child in node.children.items():
                copy.put(part, self._copy(child, index, depth + 1))
        return copy

    def _scalar(self, event: Any) -> Node:
        text, is_plain = event.value, event.implicit[0]
        if event.style in ("'", '"'):
            self._quoted = event
        try:
            value = resolve_plain(text) if is_plain else text
        except ScalarError as error:
            message = f"{str(error)[0].upper()}{str(error)[1:]}"
            raise RefusedError(message, "Quote it if it is text", _start(event)) from None
        _check_characters(text, _start(event))
        return Node(value, _start(event), empty=is_plain and not text)

    def _sequence(self, event: Any, path: Path) -> Node:
        node = Node([], _start(event))
        for item in self._events:
            if isinstance(item, yaml.SequenceEndEvent):
                break
            node.append(self._node(item, (*path, len(node.value))))
        return node

    def _mapping(self, event: Any, path: Path) -> Node:
        node, merged = Node({}, _start(event)), None
        for item in self._events:
            if isinstance(item, yaml.MappingEndEvent):
                break
            key = self._key(item)
            child = self._node(next(self._events), (*path, key))
            if key in node.value:
                line = self._text.position(node.keys[key]).line
                message = f'The key "{key}" occurs twice: first on line {line}'
                position = self._text.position(_start(item))
                self.problems.append(Problem(message, "Remove one of them", position, (*path, key)))
                continue
            merged = child if self._merges and _is_merge(item) else merged
            node.put(key, child, _start(item))
        if merged is not None:
            node.take("<<")
            _merge(merged, node)
        return node

    def _key(self, event: Any) -> str:
        index = _start(event)
        if isinstance(event, yaml.ScalarEvent):
            if not self._merges and _is_merge(event):
                hint = "Write the keys out; an alias (*name) can stand for a whole value"
                raise RefusedError("Merge keys (<<) are not part of YAML 1.2", hint, index)
            _check_characters(event.value, index)
            # JSON only has text as keys.
            return str(event.value)
        if (placeholder := _PLACEHOLDER.match(self._text.text, index - 1)) is not None:
            hint = f'Put the whole value in quotes, as in "{placeholder[0]}"'
            raise RefusedError("A value that begins with {{ must be in quotes", hint, index - 1)
        raise RefusedError("A key must be text", "Put the key in quotes", index)

    def _count(self, node: Node, index: int) -> None:
        self._nodes += 1
        self._characters += len(node.value) if isinstance(node.value, str) else 0
        if self._nodes > MAX_NODES or self._characters > MAX_CHARACTERS:
            message = f"The file contains more than {MAX_NODES:,} values, counting each use of an"
            hint = "Use fewer aliases, or split the suite"
            raise RefusedError(f"{message} alias", hint, index, limit=True)


def _is_merge(event: Any) -> bool:
    is_plain = isinstance(event, yaml.ScalarEvent) and event.implicit[0]
    return is_plain and event.value == "<<"


def _merge(merged: Node, into: Node) -> None:
    """Add merged keys; the own keys of the mapping win, then those of earlier mappings."""
    sources = [*merged.children.values()] if isinstance(merged.value, list) else [merged]
    if any(not isinstance(source.value, dict) for source in sources):
        hint = "Write it like `<<: *name`, with `&name` before a mapping"
        message = "<< must refer to a mapping, or to a list of mappings"
        raise RefusedError(message, hint, merged.start)
    own = dict(into.value)
    into.value.clear()
    for source in sources:
        for key, child in source.children.items():
            if key not in own and key not in into.value:
                into.put(key, child, source.keys[str(key)])
    into.value.update(own)


def _check_characters(text: str, index: int) -> None:
    if found := _NO_CHARACTER.search(text):
        hint = "Remove it, or use the escape of a whole character, such as \\U0001F600"
        raise RefusedError(f"The character U+{ord(found[0]):04X} is not allowed", hint, index)


def _start(event: Any) -> int:
    index: int = event.start_mark.index
    return index


_UNCLOSED = {
    "while parsing a flow sequence": "[",
    "while parsing a flow mapping": "{",
    "while scanning a quoted scalar": "quote",
}

_SYNTAX = {
    "mapping values are not allowed": (
        "A ':' is not allowed here",
        "Put the value in quotes if it contains ': ', or check the indentation of this line",
    ),
    "found unknown escape character": (
        "This escape is unknown in double quotes",
        "Write \\\\ for a backslash, or use single quotes, where a backslash is just a backslash",
    ),
    "did not find expected node content": (
        "A value is missing here",
        "Check the brackets and commas of this line; quote text that contains brackets or commas",
    ),
    "could not find expected ':'": (
        "A ':' is missing after a key",
        "Write `key: value`; lines of a longer text are indented under their key",
    ),
    "did not find expected key": (
        "The indentation does not match the lines above",
        "Keys of one mapping begin in the same column",
    ),
    "did not find expected '-' indicator": (
        "A list ends here, but this line is not indented like the rest",
        "Items of one list begin with '-' in the same column; keys do not mix with items",
    ),
}


# Plain scalars follow the core schema of YAML 1.2 (section 10.3 of the standard): `no`, `on`,
# `12:30:45` and dates are text, `010` is ten.
_CONSTANTS: dict[str, bool | None] = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_CONSTANTS |= dict.fromkeys(("true", "True", "TRUE"), True)
_CONSTANTS |= dict.fromkeys(("false", "False", "FALSE"), False)
_NUMBER = re.compile(
    r"(?P<integer>[-+]?[0-9]+)|(?P<based>0o[0-7]+|0x[0-9a-fA-F]+)|"
    r"(?P<float>[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?)",
    re.ASCII,
)
_NOT_JSON = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

_MAX_DIGITS = 1_000
"""Longer numbers are refused: reading n digits takes n² time."""


class ScalarError(ValueError):
    """The value of a scalar is not valid as JSON."""


def resolve_plain(text: str) -> str | int | float | bool | None:
    """Return the value of an unquoted scalar; raise `ScalarError` if it is not valid as JSON."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _NOT_JSON.fullmatch(text):
        raise ScalarError(f"{text} is not a number that JSON can represent")
    if (number := _NUMBER.fullmatch(text)) is None:
        return text
    if len(text) > _MAX_DIGITS:
        raise ScalarError(f"a number of {len(text)} characters is too long")
    if number["integer"]:
        return int(text)
    if number["based"]:
        return int(text, 0)
    value = float(text)
    if not math.isfinite(value):
        raise ScalarError(f"{text} is too large")
    return value
