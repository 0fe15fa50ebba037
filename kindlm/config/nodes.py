"""From the events of a YAML parser to nodes: values with their places, of bounded size.

Depth, nodes (aliases counted as often as used) and characters are bounded, so that building ends,
and ends soon, whatever the text is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from kindlm.config.places import Path, Problem, SourceText
from kindlm.config.scalars import TAG_PREFIX, ScalarError, resolve_plain, resolve_tagged

MAX_DEPTH = 64
MAX_NODES = 200_000
MAX_CHARACTERS = 4 * 1024 * 1024

_NO_CHARACTER = re.compile("[\ud800-\udfff\ufdd0]")
_LOADER: type[Any] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


@dataclass(slots=True)
class Node:
    """A value with its place; `keys` and `children` follow the path into it.

    `nodes` and `characters` are its size with all aliases expanded.
    """

    value: Any
    start: int
    keys: dict[str, int] = field(default_factory=dict)
    children: dict[str | int, Node] = field(default_factory=dict)
    nodes: int = 1
    characters: int = 0
    empty: bool = False


class RefusedError(Exception):
    """Reading cannot go on."""

    def __init__(self, message: str, hint: str, index: int, *, limit: bool = False) -> None:
        super().__init__(message)
        self.message, self.hint, self.index, self.limit = message, hint, index, limit


class Builder:
    """Builds nodes from the parser's events. Recursion is bounded by `MAX_DEPTH`.

    With `merges`, the keys of what `<<` refers to are part of a mapping, as in YAML 1.1.
    """

    def __init__(self, text: SourceText, *, merges: bool = False) -> None:
        self._text = text
        self._merges = merges
        self._events: Iterator[Any] = yaml.parse(text.text, Loader=_LOADER)
        self._anchors: dict[str, Node | None] = {}
        self._quoted: Any = None
        self.problems: list[Problem] = []

    def quoted_before(self, index: int) -> int | None:
        """Return where a quoted text begins that ends before `index`, on the same line."""
        if self._quoted is None:
            return None
        end: int = self._quoted.end_mark.index
        between = self._text.text[end:index]
        is_next = end <= index and not between.strip() and "\n" not in between
        return _start(self._quoted) if is_next else None

    def build(self) -> Node | None:
        """Return the node of the document, None if there is none.

        Raises:
            RefusedError: the document is none that JSON could hold, or too large.
            yaml.MarkedYAMLError: the text is not YAML.
        """
        root: Node | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise RefusedError(
                        "The file holds more than one document",
                        "Remove the line '---' and put each suite into a file of its own",
                        _start(event),
                    )
                root = self._node(next(self._events), ())
        return root

    def build_all(self) -> Node:
        """Return the list of all documents of the text; raises as `build` does."""
        values: list[Any] = []
        root = Node(values, 0)
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                # An anchor holds in its document.
                self._anchors.clear()
                document = self._node(next(self._events), ())
                self._adopt(root, len(values), document)
                values.append(document.value)
        return root

    def _node(self, event: Any, path: Path) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.anchor:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event)
        elif len(path) >= MAX_DEPTH:
            raise RefusedError(
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

    def _alias(self, event: Any) -> Node:
        index = _start(event)
        if event.anchor not in self._anchors:
            known = ", ".join(f"*{name}" for name in self._anchors) or "none"
            raise RefusedError(
                f"The alias *{event.anchor} refers to nothing",
                f"Anchors before this line: {known}. A text that begins with * needs quotes",
                index,
            )
        node = self._anchors[event.anchor]
        if node is None:
            raise RefusedError(
                f"The alias *{event.anchor} stands inside what it refers to",
                "A value cannot contain itself",
                index,
            )
        return node

    def _scalar(self, event: Any) -> Node:
        index = _start(event)
        text: str = event.value
        plain, quoted = event.implicit
        if event.style in ("'", '"'):
            self._quoted = event
        value: Any
        try:
            if event.tag == "!" or (quoted and not plain):
                value = text
            elif plain:
                value = resolve_plain(text)
            else:
                value = resolve_tagged(event.tag, text)
        except ScalarError as error:
            raise RefusedError(
                f"{str(error)[0].upper()}{str(error)[1:]}", "Put it in quotes to mean text", index
            ) from None
        _check_characters(text, index)
        empty = plain and not text
        return Node(value, index, characters=len(text), empty=empty)

    def _sequence(self, event: Any, path: Path) -> Node:
        self._check_tag(event, "seq")
        values: list[Any] = []
        node = Node(values, _start(event))
        for item in self._events:
            if isinstance(item, yaml.SequenceEndEvent):
                break
            child = self._node(item, (*path, len(values)))
            self._adopt(node, len(values), child)
            values.append(child.value)
        return node

    def _mapping(self, event: Any, path: Path) -> Node:
        self._check_tag(event, "map")
        values: dict[str, Any] = {}
        merged: list[Node] | None = None
        node = Node(values, _start(event))
        for item in self._events:
            if isinstance(item, yaml.MappingEndEvent):
                break
            key = self._key(item)
            child = self._node(next(self._events), (*path, key))
            if key in values:
                self._duplicate(key, _start(item), node.keys[key], path)
                continue
            node.keys[key] = _start(item)
            if self._is_merge(item):
                merged = _merged(child)
                values[key] = None  # so that a second one is told
                continue
            self._adopt(node, key, child)
            values[key] = child.value
        if merged is not None:
            self._merge(node, values, merged)
        return node

    def _merge(self, node: Node, values: dict[str, Any], merged: list[Node]) -> None:
        """Add the keys of other mappings: its own go first, then those of the earlier ones."""
        del values["<<"], node.keys["<<"]
        own = dict(values)
        values.clear()
        for source in merged:
            for key, child in source.children.items():
                if isinstance(key, str) and key not in own and key not in values:
                    node.keys[key] = source.keys[key]
                    self._adopt(node, key, child)
                    values[key] = child.value
        values.update(own)

    def _is_merge(self, event: Any) -> bool:
        is_plain = isinstance(event, yaml.ScalarEvent) and event.implicit[0]
        return self._merges and is_plain and event.value == "<<"

    def _key(self, event: Any) -> str:
        index = _start(event)
        if isinstance(event, yaml.AliasEvent):
            node = self._alias(event)
            if not node.children and isinstance(node.value, str):
                return node.value
        elif isinstance(event, yaml.ScalarEvent):
            if event.value == "<<" and event.implicit[0] and not self._merges:
                raise RefusedError(
                    "Merge keys (<<) are not part of YAML 1.2",
                    "Write the keys out; an alias (*name) can stand for a whole value",
                    index,
                )
            if event.anchor:
                self._anchors[event.anchor] = Node(event.value, index)
            _check_characters(event.value, index)
            # The text as written: JSON has no other keys.
            return str(event.value)
        raise RefusedError("A key must be a plain text", "Put the key in quotes", index)

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

    def _adopt(self, parent: Node, part: str | int, child: Node) -> None:
        parent.children[part] = child
        parent.nodes += child.nodes
        parent.characters += child.characters
        self._check_size(parent, child.start)

    def _check_size(self, node: Node, index: int) -> None:
        if node.nodes > MAX_NODES or node.characters > MAX_CHARACTERS:
            raise RefusedError(
                f"The file holds more than {MAX_NODES:,} values, aliases counted as often as used",
                "Use fewer aliases, or split the suite",
                index,
                limit=True,
            )

    def _check_tag(self, event: Any, kind: str) -> None:
        if event.tag not in (None, "!", TAG_PREFIX + kind):
            tag = event.tag.replace(TAG_PREFIX, "!!")
            raise RefusedError(f"The tag {tag} is not supported", "Remove the tag", _start(event))


def _merged(node: Node) -> list[Node]:
    """Return the mappings that `<<` refers to: one, or a list of them."""
    of_list = isinstance(node.value, list)
    nodes = list(node.children.values()) if of_list else [node]
    if any(not isinstance(item.value, dict) for item in nodes):
        raise RefusedError(
            "What << refers to must be a mapping, or a list of mappings",
            "Write it like `<<: *name`, with `&name` before a mapping",
            node.start,
        )
    return nodes


def _check_characters(text: str, index: int) -> None:
    if _NO_CHARACTER.search(text):
        raise RefusedError(
            "An escape stands for something that is no character",
            "Use the escape of a whole character, such as \\U0001F600",
            index,
        )


def _start(event: Any) -> int:
    """Return where an event begins; the parser always says so."""
    index: int = event.start_mark.index
    return index
