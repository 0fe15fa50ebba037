"""Reads plain data strictly; each value knows its place, for error messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import regex

from kindlm.dataclass import dataclass
from kindlm.suggestions import hint_for
from kindlm.yaml_document import read_document

T = TypeVar("T", bool, str, int, float, list[Any], dict[str, Any])


class ScriptError(Exception):
    """An invalid script; the message names the place and the problem."""


def load_yaml(text: str) -> Any:
    """Parse YAML; raises `ScriptError` with the line of the first problem."""
    document = read_document(text.encode())
    for problem in document.problems:
        line = f"line {problem.position.line}: " if problem.position else ""
        raise ScriptError(f"{line}{problem.message}")
    return document.value


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its place in the script; all methods raise `ScriptError` for another kind."""

    value: Any
    where: str

    def fail(self, problem: str) -> NoReturn:
        """Raise the error of this value."""
        raise ScriptError(f"{self.where}: {problem}")

    def mapping(self, *allowed: str) -> dict[str, Node]:
        """Return the entries of a mapping, whose keys must be allowed."""
        entries = self.entries()
        for key in entries:
            if key not in allowed:
                self.fail(f"unknown key {key!r}. {hint_for(str(key), allowed, 'Known keys')}")
        return entries

    def entries(self) -> dict[str, Node]:
        """Return the entries of a mapping with any keys."""
        entries = self._of(dict).items()
        return {key: Node(value, f"{self.where}.{key}") for key, value in entries}

    def items(self) -> list[Node]:
        """Return the entries of a list."""
        return [Node(value, f"{self.where}[{n}]") for n, value in enumerate(self._of(list))]

    def text(self) -> str:
        """Return a text."""
        return self._of(str)

    def texts(self) -> tuple[str, ...]:
        """Return the texts of a list, or one text."""
        if isinstance(self.value, str):
            return (self.value,)
        return tuple(item.text() for item in self.items())

    def flag(self) -> bool:
        """Return true or false."""
        return self._of(bool)

    def number(self, minimum: float = 0, maximum: float = 1e9) -> float:
        """Return a number within bounds."""
        number: float = self._of(float if isinstance(self.value, float) else int)
        if not minimum <= number <= maximum:
            self.fail(f"expected a number from {minimum:g} to {maximum:g}, got {number}")
        return number

    def integer(self, minimum: int = 0, maximum: int = 10**9) -> int:
        """Return a whole number within bounds."""
        number = self.number(minimum, maximum)
        if not isinstance(number, int):
            self.fail(f"expected a whole number, got {number}")
        return number

    def choice(self, *allowed: str) -> Any:
        """Return one of the allowed words."""
        if self.value not in allowed:
            self.fail(f"expected one of {', '.join(allowed)}, got {self.value!r}")
        return self.value

    def pattern(self) -> regex.Pattern[str]:
        """Return a regular expression that ignores case."""
        try:
            return regex.compile(self.text(), regex.IGNORECASE)
        except regex.error as error:
            self.fail(f"not a valid pattern: {error}")

    def entry(self, key: str) -> Node:
        """Return a required entry of this mapping."""
        entries = self.entries()
        if key not in entries:
            self.fail(f"{key!r} is missing")
        return entries[key]

    def optional(self, key: str, read: Callable[[Node], Any], default: Any = None) -> Any:
        """Return an entry of this mapping, converted by `read`; absent or null, the default."""
        found = self.entries().get(key)
        return default if found is None or found.value is None else read(found)

    def members(self, key: str) -> list[Node]:
        """Return the entries of a list in this mapping; none if it is absent or null."""
        found: list[Node] = self.optional(key, Node.items, [])
        return found

    def _of(self, kind: type[T]) -> T:
        is_flag = isinstance(self.value, bool) and kind is not bool
        if is_flag or not isinstance(self.value, kind):
            found = type(self.value)
            self.fail(f"expected {_KINDS[kind]}, got {_KINDS.get(found, found.__name__)}")
        return self.value


_KINDS: dict[type, str] = {
    bool: "true or false",
    dict: "a mapping",
    float: "a number",
    int: "a number",
    list: "a list",
    str: "text",
    type(None): "nothing",
}
