"""JSON as in the standard (RFC 8259), so that all values that are read can be written again."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, NoReturn

Pairs = Callable[[list[tuple[str, Any]]], Any]
"""Makes an object from its members, which may have equal names."""


class KeyTwiceError(ValueError):
    """An object has a key twice; RFC 8259 does not define which value counts."""


def parse_json(text: str, pairs: Pairs | None = None) -> Any:
    """Parse a whole text; raise `ValueError` with the reason if it is not JSON.

    Unlike Python's parser, it refuses NaN, Infinity, and numbers without a finite value.
    """
    try:
        if text.startswith("\ufeff"):
            raise json.JSONDecodeError("Unexpected UTF-8 BOM", text, 0)
        return _decoder(pairs).decode(text)
    except (RecursionError, ValueError) as error:
        raise _explained(error) from None


@lru_cache(maxsize=8)
def _decoder(pairs: Pairs | None) -> json.JSONDecoder:
    # Creating a decoder takes as long as parsing a short text.
    return json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, object_pairs_hook=pairs)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object from its members; raise `KeyTwiceError` if a key occurs twice.

    It is an argument for `parse_json`.
    """
    value = dict(pairs)
    if len(value) < len(pairs):
        raise KeyTwiceError("a key occurs twice")
    return value


def parse_json_at(text: str, start: int) -> Any:
    """Parse the value that begins at an index of a text; raise `ValueError` if there is none."""
    try:
        return _decoder(None).raw_decode(text, start)[0]
    except (RecursionError, ValueError) as error:
        raise _explained(error) from None


def _explained(error: RecursionError | ValueError) -> ValueError:
    """Return the error to raise for one of Python's parser."""
    if isinstance(error, RecursionError):
        return ValueError("it is nested too deeply")
    if isinstance(error, json.JSONDecodeError):
        return ValueError(f"{error.msg} (line {error.lineno}, column {error.colno})")
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
    """Return JSON without spaces; raise `TypeError` or `ValueError` if a value is not JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def ascii_json(value: Any) -> bytes:
    """Return JSON in ASCII; escapes encode lone surrogates, which models sometimes write."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def as_text(value: Any) -> str:
    """Return text unchanged, another value as `compact_json`."""
    return value if isinstance(value, str) else compact_json(value)


def json_or_text(text: str) -> Any:
    """Return the value that Python's parser reads, or the text if it reads none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_MAX_DEPTH = 200


def read_json(value: Any) -> Any:
    """Return the JSON value of a text, the text if it is not JSON; any other value as it is.

    Lone surrogates and more than 200 levels do not count as JSON: other parsers refuse them.
    """
    if not isinstance(value, str):
        return value
    try:
        read = parse_json(value)
        require_shallow(read)
        json.dumps(read, ensure_ascii=False).encode()
    # A surrogate is a UnicodeEncodeError, which is a ValueError.
    except (ValueError, RecursionError):
        return value
    return read


def read_arguments(value: Any) -> Any:
    """Return the arguments of a tool call: an object, or the value if it is none.

    A text stays unchanged, since positions of evidence refer to it.
    """
    read = read_json(value)
    return read if isinstance(read, dict) else value


def require_shallow(value: Any) -> None:
    """Raise `ValueError` for a JSON value that is nested more than 200 levels deep."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        if not level:
            return
        level = [child for parent in level for child in _children(parent)]
    raise ValueError("it is nested too deeply")


def parts_of(value: Any) -> Iterator[Any]:
    """Yield a JSON value and all values in it, in no order, without recursion."""
    pending = [value]
    while pending:
        part = pending.pop()
        yield part
        pending.extend(_children(part))


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
