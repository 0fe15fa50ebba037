"""Words for messages: values of models, shortened and without characters that control a terminal.

Text of a model may contain escape sequences, line breaks, direction overrides and lone surrogates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_SHOWN = 160
_SENTENCE = 1_000
_BOUNDED = 4_000


def shown(value: Any, limit: int = _SHOWN) -> str:
    """Return a JSON value for a message: one line of at most `limit` characters."""
    if isinstance(value, str):
        value = value[: limit + 1]
    text = printable(json.dumps(value, ensure_ascii=False, default=repr))
    return cut(text, limit)


_CONTEXT = 30


def around_difference(one: str, other: str) -> tuple[str, str]:
    """Return the parts of two texts around their first difference."""
    pairs = enumerate(zip_longest(one, other))
    first = next((index for index, (left, right) in pairs if left != right), 0)
    start, end = max(0, first - _CONTEXT), first + 2 * _CONTEXT
    lead = "…" if start else ""
    return (
        lead + one[start:end] + ("…" if len(one) > end else ""),
        lead + other[start:end] + ("…" if len(other) > end else ""),
    )


_NOTHING = object()
_canonical = json.JSONEncoder(sort_keys=True).encode


def differences(then: Any, now: Any, path: str = "") -> Iterator[str]:
    """Yield how two JSON values differ: `messages[0].content: "old" → "new"`.

    Texts are cut to the surroundings of the first different character.
    """
    if isinstance(then, dict) and isinstance(now, dict):
        for key in {**then, **now}:
            at = f"{path}.{key}" if path else key
            yield from differences(then.get(key, _NOTHING), now.get(key, _NOTHING), at)
    elif isinstance(then, list) and isinstance(now, list):
        for number, (old, new) in enumerate(zip_longest(then, now, fillvalue=_NOTHING)):
            yield from differences(old, new, f"{path}[{number}]")
    elif isinstance(then, str) and isinstance(now, str):
        if then != now:
            old_text, new_text = around_difference(then, now)
            yield f"{_at(path)}: {shown(old_text)} → {shown(new_text)}"
    elif then is _NOTHING or now is _NOTHING or _canonical(then) != _canonical(now):
        yield f"{_at(path)}: {_value(then)} → {_value(now)}"


_COUNTED = 20
_LISTED = 3


def nearest_differences(recorded: Iterable[Any], now: Any) -> str | None:
    """Return how a JSON value differs from the nearest recorded one; None if there is none.

    The nearest one has the fewest differences. The text lists the first of them, and is empty if
    there are none.
    """
    found = (list(islice(differences(then, now), _COUNTED)) for then in recorded)
    nearest = min(found, key=len, default=None)
    return None if nearest is None else listed(nearest, _LISTED)


def _at(path: str) -> str:
    return shown(path)[1:-1] or "the body"


def _value(value: Any) -> str:
    return "nothing" if value is _NOTHING else shown(value)


_PLAIN_NAME = re.compile(r"[\w./:-]{1,80}", re.ASCII)


def named(name: str) -> str:
    """Return a name for a message, in quotes if it contains unusual characters."""
    return name if _PLAIN_NAME.fullmatch(name) else shown(name)


def excerpt(text: str) -> str:
    """Return the beginning of a text unchanged, for a value: reports escape it."""
    return cut(text, _SHOWN)


def sentence(text: str, limit: int = _SENTENCE) -> str:
    """Return a message without characters that control a terminal, of limited length."""
    return cut(printable(text[: limit + 1]), limit)


def bounded(value: Any) -> Any:
    """Return a JSON value unchanged, or its first characters if it is large."""
    if isinstance(value, str):
        return cut(value, _BOUNDED)
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return value if len(text) <= _BOUNDED else cut(text, _BOUNDED)


def printable(text: str) -> str:
    """Return a text with characters escaped that are not printable."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else escape(char) for char in text)


def measured(value: float, limit: float) -> str:
    """Return a number with three digits, or with more if rounding takes it to or over its limit."""
    text = f"{value:.3g}"
    keeps_side = (value < limit, value > limit) == (float(text) < limit, float(text) > limit)
    return text if keeps_side else f"{value:.10g}"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 call`, `3 calls`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


_SAYS_AN_ERROR = re.compile(r"\W*[\w.]*(?:error|exception|panic)\b", re.IGNORECASE)
_LAST_LINES = 3


def last_words(printed: Iterable[str]) -> str:
    """Return the last lines that a program printed, after the last line with an error."""
    lines = [line.strip() for line in printed if line.strip()]
    kept = lines[-_LAST_LINES:]
    errors = [line for line in lines if _SAYS_AN_ERROR.match(line)]
    return " | ".join(kept if not errors or errors[-1] in kept else [errors[-1], *kept])


_NAMES = 10


def listed_names(names: Sequence[str]) -> str:
    """Return names as a list for a message, of limited length."""
    return first_of(map(named, names), _NAMES)


def first_of(texts: Iterable[str], most: int) -> str:
    """Return the first texts, and the number of the others: `a, b and 3 more`."""
    found = list(texts)
    more = len(found) - most
    return ", ".join(found[:most]) + (f" and {more:,} more" if more > 0 else "")


def listed(found: Sequence[T], most: int, text: Callable[[T], str] = str) -> str:
    """Return the first findings, and the number of the others: `a; b; and 3 more`."""
    more = len(found) - most
    return "; ".join([*map(text, found[:most]), *([f"and {more} more"] if more > 0 else ())])


def option_words(option: str, value: object) -> Iterator[str]:
    """Yield an option with its value as words of a command line."""
    if value is True:
        yield option
        return
    values = value if isinstance(value, list | tuple) else (value,)
    for item in values:
        yield from (option, str(item))


def cut(text: str, limit: int) -> str:
    """Return the beginning of a text, of at most `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def escape(char: str) -> str:
    r"""Return a character as an escape of Python, such as `\x1b`; it may be a lone surrogate."""
    return char.encode("unicode_escape").decode("ascii")


def shown_path(path: Path) -> str:
    """Return a path relative to the current folder, if it is inside."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
