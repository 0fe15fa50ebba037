"""Writes a suite as YAML, and loads it once to check it.

Texts become quoted scalars or blocks, in which all unprintable characters are escaped. So no text
can become structure, a comment or a terminal escape.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

from kindlm.config import load_suite
from kindlm.dataclass import dataclass
from kindlm.errors import Err, Ok, Result
from kindlm.wording import cut

T = TypeVar("T")

WIDTH = 88
"""Characters of a line: the default of Python's formatters."""

BRACES = {"braces": "{{"}
"""The variables of a test with texts of `literal`."""

_PLAIN = re.compile(r"[A-Za-z_][\w./-]*(?: [A-Za-z_][\w./-]*)*", re.ASCII)
_HALF = re.compile("[\ud800-\udfff]")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment, as a key of a mapping with any value, or as an item of a list."""

    text: str


def commented(mapping: Mapping[Any, Any]) -> Comment:
    """Return a mapping as commented-out YAML."""
    return Comment("\n".join(_lines(mapping, "")))


def literal(text: str) -> str:
    """Return a text for a prompt or a message, without placeholders of its own.

    If the result contains `{{braces}}`, the test needs the variables `BRACES`. Values of variables
    need no such care.
    """
    return text.replace("{{", "{{braces}}")


def yaml_text(document: Mapping[Any, Any]) -> str:
    """Return a mapping as a file of YAML."""
    return "\n".join(_lines(document, "")) + "\n"


def suite_text(document: Mapping[str | Comment, Any], file: Path) -> Result[str]:
    """Return a suite as text, if `kindlm test` can load it as `file`; else its first error."""
    text = yaml_text(document)
    loaded = load_suite(file, text=text.encode())
    error = next((each.error for each in loaded.diagnostics if each.severity == "error"), None)
    return Ok(text) if error is None else Err(error)


def suite_texts(
    items: Sequence[T], write: Callable[[Sequence[T]], Result[str]]
) -> Result[list[str]]:
    """Return suites as text, which share the items; several if `write` fails for all items at once.

    An item for which `write` fails alone is an error.
    """
    made = write(items)
    if isinstance(made, Ok):
        return Ok([made.value])
    if len(items) == 1:
        return made
    half = len(items) // 2
    parts = [suite_texts(some, write) for some in (items[:half], items[half:])]
    wrong = next((part for part in parts if isinstance(part, Err)), None)
    return wrong or Ok([text for part in parts if isinstance(part, Ok) for text in part.value])


def unused(wanted: str, taken: Container[str], numbered: str = "{}-{}") -> str:
    """Return the wanted name, with a number if it is taken."""
    names = chain([wanted], (numbered.format(wanted, number) for number in count(2)))
    return next(name for name in names if name not in taken)


def _lines(value: Mapping[Any, Any] | list[Any], indent: str) -> Iterator[str]:
    """Yield the lines of a mapping or a list that is not empty."""
    is_list = isinstance(value, list)
    pairs = zip(value, value, strict=True) if isinstance(value, list) else value.items()
    for key, item in pairs:
        if isinstance(key, Comment):
            for line in key.text.splitlines():
                yield f"{indent}# {''.join(c if c.isprintable() else ' ' for c in line)}".rstrip()
        elif is_list:
            yield from _entry("- ", item, indent)
        else:
            yield from _entry(f"{_scalar(key)}: ", item, indent)


def _entry(before: str, item: Any, indent: str) -> Iterator[str]:
    """Yield the lines of a list item, or of a key and its value."""
    inner = f"{indent}  "
    # A single key is easier to read and to extend without braces.
    is_single = before == "- " and isinstance(item, Mapping) and len(item) == 1
    line = None if is_single else _one_line(item)
    can_break = item and isinstance(item, Mapping | list)
    if line is not None and not (can_break and len(f"{indent}{before}{line}") > WIDTH):
        yield f"{indent}{before}{line}"
    elif isinstance(item, str) and _fits_block(item):
        yield f"{indent}{before}|{'' if item.endswith(chr(10)) else '-'}"
        for each in item.removesuffix("\n").split("\n"):
            yield f"{inner}{each}".rstrip()
    elif isinstance(item, str):
        yield f"{indent}{before}{_literal(item)}"
    elif before == "- ":
        first, *others = _lines(item, inner)
        yield f"{indent}- {first[len(inner) :]}"
        yield from others
    else:
        yield f"{indent}{before.rstrip()}"
        yield from _lines(item, inner)


def _one_line(item: Any) -> str | None:
    """Return a value on one line; None for nested collections and texts of several lines."""
    if not isinstance(item, Mapping | list):
        return _scalar(item) if _is_scalar(item) else None
    parts = [*item, *item.values()] if isinstance(item, Mapping) else item
    if not all(_is_scalar(each) or each in ({}, []) for each in parts):
        return None
    if isinstance(item, list):
        return f"[{', '.join(map(_scalar, item))}]"
    pairs = ", ".join(f"{_scalar(key)}: {_scalar(each)}" for key, each in item.items())
    return f"{{ {pairs} }}" if pairs else "{}"


def _is_scalar(value: Any) -> bool:
    is_lines = isinstance(value, str) and "\n" in value
    return not is_lines and not isinstance(value, Comment | Mapping | list)


def _fits_block(text: str) -> bool:
    """Return whether a text of several lines can be a block scalar (`|`)."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and all(line.isprintable() and line == line.rstrip() for line in lines)
        and lines[0][:1].strip() != ""
        and lines[-1] != ""
    )


def _scalar(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value, allow_nan=False)
    is_plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    return value if is_plain else _literal(value)


def _literal(text: str) -> str:
    """Return a text as a double-quoted scalar on one line.

    Half a surrogate pair, as in a text that a program cut, is replaced: YAML cannot hold it.
    """
    return f'"{escaped(_HALF.sub(chr(0xFFFD), text), chr(34))}"'


def escaped(text: str, quote: str) -> str:
    """Return the characters of a literal in Python or YAML, without its quotes."""
    return "".join(f"\\{char}" if char == quote else repr(char)[1:-1] for char in text)


def one_line(text: str, limit: int) -> str:
    """Return a text on one line of at most `limit` printable characters."""
    beginning = text[: 4 * limit]
    printable = "".join(char if char.isprintable() else " " for char in beginning)
    return cut(" ".join(printable.split()), limit)


_LONGEST_SLUG = 40


def slug(text: str) -> str:
    """Return the words of a text for names of files and functions, such as `asks_for_a_refund`.

    It consists of lower-case letters of any alphabet, digits and underscores.
    """
    letters = unicodedata.normalize("NFKC", text.lower())
    # Identifiers exclude some letters.
    named = "".join(char if f"a{char}".isidentifier() else "_" for char in letters)
    return re.sub("_+", "_", named).strip("_")[:_LONGEST_SLUG].rstrip("_") or "scenario"


def check_folder(folder: Path) -> None:
    """Check that files can be written into a folder, without leaving any; else raise `OSError`."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    finally:
        for each in missing:
            with suppress(OSError):
                each.rmdir()


def write_file(file: Path, text: str, *, force: bool, taken: Collection[Path] = ()) -> Path:
    """Write a text into a file, and return its path, with a number if the file exists.

    With `force` it overwrites the file, unless it is `taken`.

    Raises:
        OSError: it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        path = file if number == 1 else file.with_stem(f"{file.stem}_{number}")
        with suppress(FileExistsError):
            if path not in taken:
                with path.open("w" if force else "x", encoding="utf-8", newline="\n") as opened:
                    opened.write(text)
                break
    return path
