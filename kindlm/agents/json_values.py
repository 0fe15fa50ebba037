"""JSON values of agents: written without spaces, and what is in them found by its path."""

from __future__ import annotations

import json
import re
from typing import Any

from kindlm.matching import ABSENT, value_at

__all__ = ["ABSENT", "PATH", "compact_json", "lookup", "parent_of"]

WHOLE = "$"
"""The path of the value itself."""

PATH = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+|\[\d+\])*")
"""How a path is written: `choices[0].message.content`, or `choices.0.message.content`."""

_PART = re.compile(r"[^.\[\]]+")


def compact_json(value: Any) -> str:
    """Return JSON without spaces; raise `TypeError` or `ValueError` for what JSON can't hold."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def lookup(value: Any, path: str) -> Any:
    """Return what is at a path, `ABSENT` if nothing is."""
    return value if path == WHOLE else value_at(value, _PART.findall(path))


def parent_of(value: Any, path: str) -> Any:
    """Return what holds the last part of a path, `ABSENT` if nothing is there to hold it."""
    return lookup(value, ".".join(_PART.findall(path)[:-1]))
