"""Reads JSON that a model wrote: strictly, except that one surrounding code fence is allowed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kindlm import strict_json

__all__ = ["ParsedJson", "parse_json"]

_FENCED = re.compile(r"(`{3,}|~{3,})[^\n`]*\n(.*)\1", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParsedJson:
    """A JSON value, and whether a code fence around it had to be taken away."""

    value: Any
    fenced: bool


def parse_json(text: str) -> ParsedJson:
    """Parse a whole text as JSON.

    Raises:
        ValueError: it is no JSON; says where.
    """
    body, fenced = _unfenced(text)
    return ParsedJson(strict_json.parse_json(body), fenced)


def _unfenced(text: str) -> tuple[str, bool]:
    stripped = text.strip()
    fence = _FENCED.fullmatch(stripped) if stripped[:1] in {"`", "~"} else None
    return (fence[2], True) if fence else (text, False)
