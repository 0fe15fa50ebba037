"""Reads plain data strictly: every value knows its place, so that errors can name it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import regex

from kindlm.dataclass import dataclass
from kindlm.suggestions import hint_for
from kindlm.yaml_document import read_document

if TYPE_CHECKING:
    from collections.abc import Callable


class ScriptError(Exception):
    """A script that cannot be used; the message names the place and what is wrong."""


def load_yaml(text: str) -> Any:
    """Parses a script's YAML.

    Raises:
        ScriptError: with the line of the first mistake.
    """
    document = read_document(text.encode())
    for problem in document.problems:
        line = f"line {problem.position.line}: " if problem.position else ""
        raise ScriptError(f"{line}{problem.message}")
    return document.value


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where in the script it stands."""

    value: Any
    where: str

    def fail(self, problem: str) -> NoReturn:
        """Refuses the value.

        Raises:
            ScriptError: always.
        """
        raise ScriptError(f"{self.where}: {problem}")

    def mapping(self, *allowed: str) -> dict[str, Node]:
        """The entries of a mapping whose keys must be among the allowed ones."""
        entries = self.entries()
        for key in entries:
            if key not in allowed:
                self.fail(f"unknown key {key!r}. {hint_for(str(key), allowed, 'Known keys')}")
        return entries

    def entries(self) -> dict[str, Node]:
        """The entries of a mapping with any text keys."""
        if not isinstance(self.value, dict):
            self.fail(f"expected a mapping, got {_kind(self.value)}")
        return {key: Node(value, f"{self.where}.{key}") for key, value in self.value.items()}

    def items(self) -> list[Node]:
        """The entries of a list."""
        if not isinstance(self.value, list):
            self.fail(f"expected a list, got {_kind(self.value)}")
        return [Node(value, f"{self.where}[{n}]") for n, value in enumerate(self.value)]

    def text(self) -> str:
        """A text."""
        if not isinstance(self.value, str):
            self.fail(f"expected text, got {_kind(self.value)}")
        return self.value

    def texts(self) -> tuple[str, ...]:
        """One text, or a list of texts."""
        if isinstance(self.value, str):
            return (self.value,)
        return tuple(item.text() for item in self.items())

    def flag(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            self.fail(f"expected true or false, got {_kind(self.value)}")
        return self.value

    def number(self, minimum: float = 0, maximum: float = 1e9) -> float:
        """A number within bounds."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            self.fail(f"expected a number, got {_kind(self.value)}")
        if not minimum <= self.value <= maximum:
            self.fail(f"expected a number from {minimum:g} to {maximum:g}, got {self.value}")
        return self.value

    def integer(self, minimum: int = 0, maximum: int = 10**9) -> int:
        """A whole number within bounds."""
        number = self.number(minimum, maximum)
        if not isinstance(number, int):
            self.fail(f"expected a whole number, got {number}")
        return number

    def choice(self, *allowed: str) -> Any:
        """One of a few words."""
        if self.value not in allowed:
            self.fail(f"expected one of {', '.join(allowed)}, got {self.value!r}")
        return self.value

    def pattern(self) -> regex.Pattern[str]:
        """A regular expression, compiled without regard to case."""
        try:
            return regex.compile(self.text(), regex.IGNORECASE)
        except regex.error as error:
            self.fail(f"not a valid pattern: {error}")

    def entry(self, key: str) -> Node:
        """An entry of this mapping, which must be there."""
        entries = self.entries()
        if key not in entries:
            self.fail(f"{key!r} is missing")
        return entries[key]

    def given(self, key: str, read: Callable[[Node], Any], default: Any = None) -> Any:
        """An entry of this mapping, read, or the default when it is absent or null."""
        found = self.entries().get(key)
        return default if found is None or found.value is None else read(found)

    def members(self, key: str) -> list[Node]:
        """The entries of a list in this mapping; none when it is absent or null."""
        found: list[Node] = self.given(key, Node.items, [])
        return found


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    names = {str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "a list" if isinstance(value, list) else "a mapping")
