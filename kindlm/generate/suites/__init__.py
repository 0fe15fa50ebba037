"""Reads suites of other programs as suites of kindlm.

Each module or package here reads one format. It has `TITLE`, `reads(document) -> bool`, which
recognises a file, and `read(document, files)`, which returns an `ImportedSuite`, or raises
`LeftOutError` if no suite can be made of the file.

Checks without an equivalent in kindlm are left out and noted with their line. A test that has no
checks left is imported with `skip: true`, so that no imported test passes unchecked.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Callable
from dataclasses import field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from kindlm.config.files import ReferencedFiles
from kindlm.dataclass import dataclass
from kindlm.document import Path as Keys
from kindlm.document import Problem
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation
from kindlm.generate.suite_text import one_line
from kindlm.strict_json import parse_json, require_shallow
from kindlm.yaml_document import read_documents

T = TypeVar("T")


class LeftOutError(Exception):
    """Kindlm has no equivalent of `what`; `instead` is what the user can do."""

    def __init__(self, what: str, instead: str = "") -> None:
        super().__init__(what)
        self.what, self.instead = what, instead


@dataclass(frozen=True, slots=True)
class Part:
    """A value in a file, and its place: `keys` is the path from the top."""

    value: Any
    file: str
    line_of: Callable[[Keys], int] = field(default=lambda _: 1, repr=False)
    keys: Keys = ()

    @property
    def place(self) -> str:
        """The file and the line, such as `promptfooconfig.yaml:12`."""
        return f"{self.file}:{self.line_of(self.keys)}"

    def get(self, key: str) -> Part | None:
        """Return the value of a key of a mapping; None if it is absent or null."""
        found = self.value.get(key) if isinstance(self.value, dict) else None
        return None if found is None else self.child(key, found)

    def entries(self, key: str | None = None) -> dict[str, Part]:
        """Return the entries of this mapping, or of the mapping at a key; {} for other values."""
        part = self if key is None else self.get(key)
        if part is None or not isinstance(part.value, dict):
            return {}
        return {name: part.child(name, item) for name, item in part.value.items()}

    def items(self, key: str | None = None) -> list[Part]:
        """Return the items of this list, or of the list at a key; another value is one item."""
        part = self if key is None else self.get(key)
        if part is None or not isinstance(part.value, list):
            return [] if part is None or part.value is None else [part]
        return [part.child(at, item) for at, item in enumerate(part.value)]

    def text(self, key: str) -> str | None:
        """Return the value of a key if it is a text."""
        found = self.get(key)
        return found.value if found is not None and isinstance(found.value, str) else None

    def number(self, key: str) -> float | None:
        """Return the number at a key; raise `LeftOutError` for any other value but null."""
        found = self.get(key)
        if found is None:
            return None
        if type(found.value) not in (int, float):
            raise LeftOutError(f"a check whose `{key}` is not a number", "Write a number")
        return cast("float", found.value)

    def child(self, key: str | int, value: Any) -> Part:
        """Return `value` as the part at a key or an index of this one."""
        return Part(value, self.file, self.line_of, (*self.keys, key))


FORMATS = tuple(sorted(each.name.replace("_", "-") for each in pkgutil.iter_modules(__path__)))
"""The names of all formats."""


def format_named(name: str) -> ModuleType:
    """Return the module of a format."""
    return import_module(f"{__name__}.{name.replace('-', '_')}")


class Files:
    """The files that a suite refers to: below the folder of the suite, and of bounded size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = ReferencedFiles(folder)

    @property
    def asked(self) -> tuple[Path, ...]:
        """All files that the suite refers to, also those that do not exist."""
        return self._files.asked

    def text(self, name: str) -> str:
        """Return the content of a file; raise `LeftOutError` if it cannot be read."""
        return _read(name, self._files.text(name))

    def part(self, name: str) -> Part:
        """Return the content of a file as `read_part` does; raise `LeftOutError` for its errors."""
        return _read(name, read_part(name, self.text(name).encode()))

    def named(self, pattern: str) -> list[str]:
        """Return the names of the files that match a pattern; a name without `*` as it is.

        Raises:
            LeftOutError: The pattern is not valid, matches no file, or leads out of the folder.
        """
        if "*" not in pattern:
            return [pattern]
        if ".." in Path(pattern).parts or Path(pattern).is_absolute():
            raise LeftOutError(
                f"the files {pattern}", "Files must be below the folder of the suite"
            )
        try:
            found = sorted(self.folder.glob(pattern))
        except ValueError as error:
            raise LeftOutError(f"the files {pattern}", f"Correct the pattern: {error}") from None
        names = [each.relative_to(self.folder).as_posix() for each in found if each.is_file()]
        if not names:
            raise LeftOutError(f"the files {pattern}", "No file has such a name")
        return names


def _read(name: str, found: Result[T]) -> T:
    if isinstance(found, Err):
        raise LeftOutError(f"the file {name}", f"{found.error.message}: {found.error.hint}")
    return found.value


def read_part(name: str, data: bytes) -> Result[Part]:
    """Return the content of a YAML, JSON or JSON Lines file; its name says which it is.

    The content of a JSON Lines file is the list of its values.
    """
    if name.endswith((".jsonl", ".ndjson")):
        values: dict[int, Any] = {}
        text = data.decode("utf-8-sig", errors="replace")
        for number, line in enumerate(text.split("\n"), start=1):
            try:
                if line.strip():
                    values[number] = json_value(line)
            except ValueError as error:
                code, message = ErrorCode.CONFIG_PARSE_ERROR, f"{name}, line {number} is not JSON"
                return Err(KindlmError(code, f"{message}: {error}", "Write one value a line"))
        lines = [*values]
        return Ok(Part([*values.values()], name, lambda keys: lines[int(keys[0])] if keys else 1))
    documents = read_documents(data, merges=True)
    if name.endswith(".json"):
        try:
            value = json_value(data.decode("utf-8-sig"))
        except ValueError as error:
            return Err(_unreadable(name, Problem(f"It is not JSON: {error}", "Correct it")))
        # YAML finds the lines of JSON, too, but refuses the escape of half a surrogate pair.
        found = documents.part(0) if documents.readable and documents.value else None
        return Ok(Part(value, name, lambda keys: found.position(keys).line if found else 1))
    if not documents.readable:
        return Err(_unreadable(name, documents.problems[0]))
    if not documents.value:
        return Err(_unreadable(name, Problem("The file is empty", "Name the file of a suite")))
    document = documents.part(0)
    return Ok(Part(document.value, name, lambda keys: document.position(keys).line))


def json_value(text: str) -> Any:
    """Return a JSON value; raise `ValueError` if a text is not JSON, or nested too deeply."""
    value = parse_json(text)
    require_shallow(value)
    return value


def _unreadable(name: str, problem: Problem) -> KindlmError:
    at = problem.position
    where = SourceLocation(name, at.line, at.column) if at else SourceLocation(name)
    return KindlmError(ErrorCode.CONFIG_PARSE_ERROR, problem.message, problem.hint, where)


def excerpt_of(value: Any) -> str:
    """Return the beginning of a value on one line, for names and messages.

    A mapping is represented by its keys, since its values may be credentials.
    """
    if isinstance(value, dict):
        text = f"{{{', '.join(map(str, value))}}}"
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(text, 40)
