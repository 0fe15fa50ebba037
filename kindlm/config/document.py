"""kindlm.yaml as text: read safely, into JSON values that know where they stand.

PyYAML's parser gives events; values and positions are built from those here, since its own
constructors follow YAML 1.1, keep the last of two equal keys, and crash on deep nesting. Whatever
the bytes are, reading ends: depth, nodes (aliases expanded) and characters are bounded.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from kindlm.config.nodes import Builder, Node, RefusedError
from kindlm.config.places import Path, Position, Problem, SourceText
from kindlm.config.syntax import explain_syntax

MAX_BYTES = 1024 * 1024

# c-printable of YAML 1.2. U+FDD0 is left out too: it marks placeholders in rendered prompts (see
# `interpolation`), and as a noncharacter it has no business in a text.
_FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufdcf\ufdd1-\ufffd\U00010000-\U0010ffff]"
)


@dataclass(frozen=True, slots=True)
class Document:
    """What was read. `value` is None when nothing could be, or the file is empty.

    `readable` is False when a syntax error or a limit stopped the reading.
    """

    value: Any
    problems: tuple[Problem, ...]
    readable: bool
    _text: SourceText
    _root: Node | None

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

    def part(self, part: str | int) -> Document:
        """Return a value of a mapping or list as a document of its own, without problems."""
        assert self._root is not None, "only what was read has parts"
        node = self._root.children[part]
        return Document(node.value, (), self.readable, self._text, node)


def read_document(data: bytes) -> Document:
    """Read a YAML 1.2 document. Never raises: what is wrong is in `problems`."""
    text = read_text(data)
    return text if isinstance(text, Document) else _read_yaml(text, Builder.build)


def read_documents(data: bytes, *, merges: bool = False) -> Document:
    """Read all documents of a YAML text as a list. Never raises: see `problems`.

    With `merges`, merge keys (`<<`) are followed, which YAML 1.2 has no more.
    """
    text = read_text(data)
    if isinstance(text, Document):
        return text
    return _read_yaml(text, Builder.build_all, merges=merges)


def read_text(data: bytes) -> SourceText | Document:
    """Return the text of a file; a document with a problem if it is too large, or no UTF-8."""
    if len(data) > MAX_BYTES:
        problem = Problem(
            f"The file is larger than {MAX_BYTES // 1024**2} MiB",
            "Split the suite, or move long texts and rows into files of their own",
            limit=True,
        )
        return _unreadable(SourceText(""), problem)
    if (encoding := _other_encoding(data)) is not None:
        hint = "Save the file with the encoding UTF-8"
        problem = Problem(f"The file is {encoding}, not UTF-8", hint, Position(1, 1))
        return _unreadable(SourceText(""), problem)
    try:
        return SourceText(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        problem = Problem(
            f"The file is not UTF-8: byte {error.start} (0x{data[error.start]:02x}) is not valid",
            "Save the file with the encoding UTF-8",
            SourceText(data[: error.start].decode("utf-8-sig")).position(
                len(data[: error.start].decode("utf-8-sig"))
            ),
        )
        return _unreadable(SourceText(data.decode("utf-8-sig", errors="replace")), problem)


def _other_encoding(data: bytes) -> str | None:
    """Return the encoding that a text is in by its first bytes, None if that may be UTF-8."""
    names = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF32_BE: "UTF-32"}
    names |= {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
    for mark, name in names.items():
        if data.startswith(mark):
            return name
    # Without a mark: the first character is one of ASCII.
    return "UTF-16" if data[:1] == b"\0" or data[1:2] == b"\0" else None


def _read_yaml(
    text: SourceText, build: Callable[[Builder], Node | None], *, merges: bool = False
) -> Document:
    forbidden = _FORBIDDEN.search(text.text)
    if forbidden:
        problem = Problem(
            f"The character U+{ord(forbidden[0]):04X} is not allowed in YAML",
            'Remove it, or write it as an escape in double quotes, such as "\\u0007"',
            text.position(forbidden.start()),
        )
        return _unreadable(text, problem)
    builder = Builder(text, merges=merges)
    try:
        root = build(builder)
    except RefusedError as refused:
        position = text.position(refused.index)
        problem = Problem(refused.message, refused.hint, position, limit=refused.limit)
        return _unreadable(text, problem)
    except yaml.MarkedYAMLError as error:
        return _unreadable(text, _syntax_problem(text, error, builder))
    value = None if root is None else root.value
    return Document(value, tuple(builder.problems), True, text, root)


def _unreadable(text: SourceText, problem: Problem) -> Document:
    return Document(None, (problem,), False, text, None)


def _syntax_problem(text: SourceText, error: yaml.MarkedYAMLError, builder: Builder) -> Problem:
    context: Any = error.context_mark
    mark: Any = error.problem_mark or context
    index = min(mark.index, len(text.text)) if mark else 0
    begin = text.position(context.index) if context else None
    quoted = builder.quoted_before(index)
    explained = explain_syntax(
        error,
        text.text[index : index + 1],
        begin.line if begin else None,
        None if quoted is None else text.position(quoted).line,
    )
    # A quote or bracket that is never closed is wrong where it opens, not where the file ends.
    position = begin if explained.at_context and begin else text.position(index)
    return Problem(explained.message, explained.hint, position)
