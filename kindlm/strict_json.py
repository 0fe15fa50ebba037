"""JSON exactly as in the standard (RFC 8259), so that everything read can be written again."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, NoReturn

Pairs = Callable[[list[tuple[str, Any]]], Any]
"""Makes an object of its members, which may have a name twice."""


_WORDS = (
    ("Expecting value", "a value is expected"),
    ("Expecting ','", "a comma or the end is expected"),
    ("Expecting ':'", "a colon is expected"),
    ("Expecting property name", "a name in double quotes is expected"),
    ("Illegal trailing comma", "nothing follows a comma"),
    ("Unterminated string", "a string has no end"),
    ("Invalid control character", "a string has a line end or another control character in it"),
    ("Invalid \\", "it has an invalid escape after a backslash"),
    ("Extra data", "there is text after the value"),
    ("Unexpected UTF-8 BOM", "it begins with a byte order mark"),
)
"""What the parser of Python says is wrong, as it begins, and what is said of it here."""


class KeyTwiceError(ValueError):
    """An object has a key twice. Which of the values counts, RFC 8259 leaves open."""


class NotJsonError(ValueError):
    """`what` is wrong with a text; `position` is how many characters come before that."""

    def __init__(self, what: str, found: json.JSONDecodeError) -> None:
        self.what = what
        super().__init__(f"{what} (line {found.lineno}, column {found.colno})")
        self.position = found.pos


def parse_json(text: str, pairs: Pairs | None = None) -> Any:
    """Parse a whole text; raise `ValueError` that says what is wrong with it.

    Refused is also what Python takes and JSON is not: NaN, Infinity, and numbers such as 1e400,
    which have no finite value.
    """
    try:
        if text.startswith("\ufeff"):
            raise json.JSONDecodeError("Unexpected UTF-8 BOM", text, 0)
        return _decoder(pairs).decode(text)
    except (RecursionError, ValueError) as error:
        raise explained(error) from None


@lru_cache(maxsize=8)
def _decoder(pairs: Pairs | None) -> json.JSONDecoder:
    # To make one takes as long as to parse a short text.
    return json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, object_pairs_hook=pairs)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of some members; raise `KeyTwiceError` if a key occurs twice.

    To be given to `parse_json` where a value that another hides may be the one that matters.
    """
    value = dict(pairs)
    if len(value) < len(pairs):
        raise KeyTwiceError("a key occurs twice")
    return value


def parse_json_at(text: str, start: int) -> Any:
    """Parse the value that begins at a place of a text; raise `ValueError` if none does."""
    try:
        return _decoder(None).raw_decode(text, start)[0]
    except (RecursionError, ValueError) as error:
        raise explained(error) from None


def explained(error: RecursionError | ValueError) -> ValueError:
    """Return an error of Python's parser in words for those who do not write Python."""
    if isinstance(error, RecursionError):
        return ValueError("it is nested too deeply")
    if isinstance(error, json.JSONDecodeError):
        words = (ours for theirs, ours in _WORDS if error.msg.startswith(theirs))
        return NotJsonError(next(words, error.msg), error)
    if "set_int_max_str_digits" in str(error):
        return ValueError(f"an integer has more than {sys.get_int_max_str_digits():,} digits")
    return error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:40]} is too large")
    return number


def compact_json(value: Any) -> str:
    """Return JSON without spaces; raise `TypeError` or `ValueError` for what JSON cannot hold."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def as_text(value: Any) -> str:
    """Return a text as it is, and another value as JSON without spaces; raise as `compact_json`."""
    return value if isinstance(value, str) else compact_json(value)


def json_or_text(text: str) -> Any:
    """Return what the parser of Python reads in a text, more than JSON, too; else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_MAX_DEPTH = 200


def read_json(text: str | None) -> Any:
    """Return the JSON value of a text; the text itself if it is not JSON; None without a text.

    What Python takes and JSON, or other parsers, do not, is not JSON here: NaN, numbers without a
    finite value, halves of surrogate pairs, hundreds of levels.
    """
    if text is None:
        return None
    try:
        value = parse_json(text)
        require_shallow(value)
        json.dumps(value, ensure_ascii=False).encode()
    # A surrogate is a UnicodeEncodeError, which is a ValueError.
    except (ValueError, RecursionError):
        return text
    return value


def read_arguments(text: str | None) -> Any:
    """Return the arguments of a tool call: an object, or the text that should have been one.

    What is not an object stays as it was written: evidence counts its characters.
    """
    value = read_json(text)
    return value if isinstance(value, dict) else text


def require_shallow(value: Any) -> None:
    """Raise `ValueError` for a JSON value that is nested more than 200 levels deep."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        if not level:
            return
        level = [child for parent in level for child in _children(parent)]
    raise ValueError("it is nested too deeply")


def parts_of(value: Any) -> Iterator[Any]:
    """Yield a JSON value and all that is inside, in no order; no depth overflows the stack."""
    pending = [value]
    while pending:
        part = pending.pop()
        yield part
        pending.extend(_children(part))


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
