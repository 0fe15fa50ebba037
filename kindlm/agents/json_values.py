"""JSON from agents: strict, so that whatever is kept is JSON again, and found by its path."""

from __future__ import annotations

import json
import math
import re
from typing import Any

__all__ = ["ABSENT", "PATH", "compact_json", "lookup", "parse_json"]

ABSENT: Any = object()
"""What a path leads to where there is nothing; null is something."""

PATH = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+|\[\d+\])*")
"""How a path is written: `choices[0].message.content`, or `choices.0.message.content`."""

_PART = re.compile(r"[^.\[\]]+")


def parse_json(text: str) -> Any:
    """Parse strict JSON (no NaN, no Infinity); raise `ValueError` for anything else."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def compact_json(value: Any) -> str:
    """Return JSON without spaces; raise `TypeError` or `ValueError` for what JSON can't hold."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def lookup(value: Any, path: str) -> Any:
    """Return what is at a path, `ABSENT` if nothing is."""
    for part in _PART.findall(path):
        if isinstance(value, dict):
            value = value.get(part, ABSENT)
        elif isinstance(value, list) and part.isascii() and part.isdigit():
            value = value[int(part)] if int(part) < len(value) else ABSENT
        else:
            return ABSENT
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _finite(digits: str) -> float:
    """Return a number; raise `ValueError` for one like 1e400, which nothing could write again."""
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is too large")
    return number
