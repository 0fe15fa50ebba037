"""Reads JSON that a model wrote: strictly, except that one surrounding code fence is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kindlm import strict_json
from kindlm.model_answers import unfenced

__all__ = ["ParsedJson", "parse_json"]


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
    inside = unfenced(text)
    body = text if inside is None else inside
    return ParsedJson(strict_json.parse_json(body), fenced=inside is not None)
