"""Templates of promptfoo: Nunjucks, of which kindlm fills in plain names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kindlm.config.interpolation import is_deferred
from kindlm.generate.suites import Files, NoTwinError, Part, excerpt_of

_OPENING = re.compile(r"\{[{%#]")
_CLOSING = {"{{": "}}", "{%": "%}", "{#": "#}"}
_NAME = re.compile(r"-?\s*([A-Za-z_]\w*(?:\.\w+)*)\s*-?", re.ASCII)
_MAX_DEPTH = 5
"""How often variables may name one another."""

_NOT_TEXT = re.compile(
    r"\.(?:[cm]?[jt]s|py|rb|sh|pdf|png|jpe?g|gif|webp|svg|mp3|wav|mp4|xlsx?|docx)(?::\w+)?$",
    re.IGNORECASE,
)
_MAX_CHARACTERS = 1024 * 1024


def replace_names(text: str, replacement: Callable[[str], str]) -> str:
    """Return a template with its names replaced.

    Raises:
        NoTwinError: It has a filter, a block or another expression.
    """
    parts: list[str] = []
    at = size = 0
    for opening in _OPENING.finditer(text):
        if opening.start() < at:
            continue
        end = text.find(_CLOSING[opening[0]], opening.end())
        if end < 0:
            what = f"{excerpt_of(text[opening.start() :])}, which is never closed"
            raise NoTwinError(what, f"Add the {_CLOSING[opening[0]]}")
        parts.append(text[at : opening.start()])
        at = end + 2
        name = _NAME.fullmatch(text[opening.end() : end])
        if opening[0] == "{{" and name is not None:
            parts.append(replacement(name[1]))
            size += len(parts[-1])
        elif opening[0] != "{#":
            raise NoTwinError(
                f"the template {excerpt_of(text[opening.start() : at])}",
                "kindlm fills in plain names, as {{name}}: put the result into a variable",
            )
        if size > _MAX_CHARACTERS:
            raise NoTwinError("a template that becomes too long", "Use shorter values")
    return "".join([*parts, text[at:]])


def text_of(value: Any) -> str:
    """Return a scalar as promptfoo writes it into a text."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else json.dumps(value)


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables of a test; those with several values have one here."""

    values: Mapping[str, Any]
    _known: dict[str, str] = field(default_factory=dict)
    """What names were found to stand for: a name may occur often."""

    def fill(self, value: Any, depth: int = 0) -> Any:
        """Return a value with all names in its texts filled in; see `replace_names`."""
        if isinstance(value, str):
            return replace_names(value, lambda name: self.text(name, depth))
        if isinstance(value, list):
            return [self.fill(item, depth) for item in value]
        if isinstance(value, dict):
            return {key: self.fill(item, depth) for key, item in value.items()}
        return value

    def has(self, name: str) -> bool:
        """Tell whether there is a value for a name."""
        return self._at(name) is not None

    def text(self, name: str, depth: int = 0) -> str:
        """Return what a name stands for; nothing if there is no such variable.

        Raises:
            NoTwinError: It is not text, or a variable of the environment.
        """
        if is_deferred(name):
            raise NoTwinError(f"{{{{{name}}}}}", "Write the value: kindlm keeps it out of prompts")
        if name in self._known:
            return self._known[name]
        value = self._at(name)
        if isinstance(value, dict | list):
            raise NoTwinError(f"{{{{{name}}}}}, which is not text", "Name a part of it")
        if depth == _MAX_DEPTH:
            raise NoTwinError(f"{{{{{name}}}}}, which names other variables", "Write the value")
        self._known[name] = text_of(self.fill(value, depth + 1))
        return self._known[name]

    def _at(self, name: str) -> Any:
        value: Any = self.values
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict | Mapping) else None
        return value


def file_value(value: Any, files: Files) -> Any:
    """Return what a text such as `file://facts.txt` refers to; any other value as it is.

    Raises:
        NoTwinError: It is a program or no text, or cannot be read.
    """
    if not isinstance(value, str) or not value.startswith("file://"):
        return value
    name = value.removeprefix("file://")
    if _NOT_TEXT.search(name):
        raise NoTwinError(f"the file {name}", "kindlm reads texts, and runs no code to import")
    if name.endswith((".json", ".yaml", ".yml")):
        return files.part(name).value
    return files.text(name).strip()


def values_of(part: Part, files: Files) -> list[Any]:
    """Return the values of a variable: the items of a list, the files of a pattern, or one."""

    def all_of(value: Any) -> Iterable[Any]:
        if isinstance(value, str) and value.startswith("file://"):
            for name in files.named(value.removeprefix("file://")):
                yield file_value(f"file://{name}", files)
        else:
            yield value

    items = part.value if isinstance(part.value, list) else [part.value]
    return [each for item in items for each in all_of(item)]
