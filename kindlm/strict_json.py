"""JSON as the standard has it (RFC 8259), so that whatever is read can be written again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["parse_json", "parse_json_at"]

Pairs = Callable[[list[tuple[str, Any]]], Any]
"""Makes an object of its members, which may have a name twice."""


def parse_json(text: str, pairs: Pairs | None = None) -> Any:
    """Parse a whole text; raise `ValueError` that says what is wrong with it.

    Refused is also what Python takes and JSON is not: NaN, Infinity, and numbers such as 1e400,
    which have no finite value.
    """
    try:
        return json.loads(
            text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=pairs
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_json_at(text: str, start: int) -> Any:
    """Parse the value that begins at a place of a text; raise `ValueError` if none does."""
    decoder = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
    try:
        return decoder.raw_decode(text, start)[0]
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:40]} is too large")
    return number
