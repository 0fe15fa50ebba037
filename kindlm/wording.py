"""Words for messages: values that a model wrote, made short and harmless for a terminal.

Text from a model can have any length and any character: escape sequences, line breaks, direction
overrides, halves of surrogate pairs. Messages contain none of these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_SHOWN = 160
_SENTENCE = 1_000
_BOUNDED = 4_000


def shown(value: Any, limit: int = _SHOWN) -> str:
    """Return a JSON value as it is quoted in a message: one line of at most `limit` characters."""
    if isinstance(value, str):
        value = value[: limit + 1]
    text = printable(json.dumps(value, ensure_ascii=False, default=repr))
    return cut(text, limit)


_CONTEXT = 30


def around_difference(one: str, other: str) -> tuple[str, str]:
    """Return what two texts say around the first character in which they differ."""
    pairs = enumerate(zip_longest(one, other))
    first = next((index for index, (its, others) in pairs if its != others), 0)
    start, end = max(0, first - _CONTEXT), first + 2 * _CONTEXT
    lead = "…" if start else ""
    return (
        lead + one[start:end] + ("…" if len(one) > end else ""),
        lead + other[start:end] + ("…" if len(other) > end else ""),
    )


_PLAIN_NAME = re.compile(r"[\w./:-]{1,80}", re.ASCII)


def named(name: str) -> str:
    """Return a name as messages have it: in quotes only if it holds unusual characters."""
    return name if _PLAIN_NAME.fullmatch(name) else shown(name)


def excerpt(text: str) -> str:
    """Return the beginning of a text as it is, for a value: those are made safe where shown."""
    return cut(text, _SHOWN)


def sentence(text: str, limit: int = _SENTENCE) -> str:
    """Return a message without characters that control a terminal, cut to a bounded length."""
    return cut(printable(text[: limit + 1]), limit)


def bounded(value: Any) -> Any:
    """Return a JSON value as it is, or its first characters if it is too large to be repeated."""
    if isinstance(value, str):
        return cut(value, _BOUNDED)
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return value if len(text) <= _BOUNDED else cut(text, _BOUNDED)


def printable(text: str) -> str:
    """Return the text with everything that is not printable escaped, spaces excepted."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else escape(char) for char in text)


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 call`, `3 calls`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


_SAYS_AN_ERROR = re.compile(r"\W*[\w.]*(?:error|exception|panic)\b", re.IGNORECASE)
_LAST_LINES = 3


def last_words(printed: Iterable[str]) -> str:
    """Return the last lines that a program printed, and before them the last that is an error."""
    lines = [line.strip() for line in printed if line.strip()]
    kept = lines[-_LAST_LINES:]
    errors = [line for line in lines if _SAYS_AN_ERROR.match(line)]
    return " | ".join(kept if not errors or errors[-1] in kept else [errors[-1], *kept])


_NAMES = 10


def listed_names(names: Sequence[str]) -> str:
    """Return names one after the other, of many the first."""
    return first_of(map(named, names), _NAMES)


def first_of(texts: Iterable[str], most: int) -> str:
    """Return texts as a list with commas: the first of many, and how many more there are."""
    every = list(texts)
    more = len(every) - most
    return ", ".join(every[:most]) + (f" and {more:,} more" if more > 0 else "")


def listed(found: Sequence[T], most: int, text: Callable[[T], str] = str) -> str:
    """Return findings one after the other: the first of many, and how many more there are."""
    more = len(found) - most
    return "; ".join([*map(text, found[:most]), *([f"and {more} more"] if more > 0 else ())])


def option_words(option: str, value: object) -> Iterator[str]:
    """Yield an option and what it is given as words of a command line."""
    if value is True:
        yield option
        return
    values = value if isinstance(value, list | tuple) else (value,)
    if option == "--tags":  # only the last one of a command line counts
        values = (",".join(values),)
    for each in values:
        yield from (option, str(each))


def cut(text: str, limit: int) -> str:
    """Return the beginning of a text, of at most `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def escape(char: str) -> str:
    """Return a character as Python writes it, a lone surrogate, too."""
    return char.encode("unicode_escape").decode("ascii")


def shown_path(path: Path) -> str:
    """Return a path as a user would type it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
