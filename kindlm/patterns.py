"""Regular expressions that a user wrote, bounded in time.

They run over text that a model wrote, and some need time exponential in its length. The `regex`
engine gives up after a timeout, which the standard library's cannot, and lets other threads run
while it searches. Its timeout is processor time of the whole process: longer on a busy machine,
shorter where other threads compute. It is imported when a pattern is first needed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex

__all__ = ["MAX_PATTERN", "PatternError", "found_in", "matches_in", "searches"]


MAX_PATTERN = 10_000
"""How many characters a pattern may have: a class of a million takes ten seconds to compile."""

_TOO_LONG = "it took too long"


class PatternError(Exception):
    """A pattern that cannot be used on a text: it does not compile, or takes too long."""


class _Dialect(Enum):
    """How a pattern is read, after what it is for."""

    SCHEMA = ""
    PERSONAL_DATA = "ia"
    OUTPUT = "is"


@lru_cache(maxsize=512)
def _compiled(pattern: str, dialect: _Dialect) -> regex.Pattern[str]:
    import regex

    if len(pattern) > MAX_PATTERN:
        raise PatternError(f"it has more than {MAX_PATTERN:,} characters")
    flags = 0
    for letter in dialect.value:
        flags |= {"i": regex.IGNORECASE, "a": regex.ASCII, "s": regex.DOTALL}[letter]
    try:
        return regex.compile(pattern, flags)
    except (regex.error, RecursionError, OverflowError) as error:
        raise PatternError(f"it does not compile: {error}") from None


def searches(pattern: str, text: str, deadline: float) -> bool:
    """Tell whether a pattern of a JSON Schema matches anywhere in a text.

    `deadline` is a time of the monotonic clock. Raises `PatternError`.
    """
    try:
        return (
            _compiled(pattern, _Dialect.SCHEMA).search(text, timeout=_remaining(deadline))
            is not None
        )
    except TimeoutError:
        raise PatternError(_TOO_LONG) from None


def found_in(pattern: str, text: str, deadline: float) -> bool:
    """Tell whether a pattern matches anywhere in an output.

    Case is ignored and `.` matches line breaks. `deadline` is a time of the monotonic clock.
    Raises `PatternError`.
    """
    compiled = _compiled(pattern, _Dialect.OUTPUT)
    try:
        return compiled.search(text, timeout=_remaining(deadline)) is not None
    except TimeoutError:
        raise PatternError(_TOO_LONG) from None


def matches_in(
    pattern: str, text: str, deadline: float, *, overlapped: bool
) -> Iterator[tuple[int, int]]:
    """Yield the ranges that a pattern for personal data matches, empty ones left out.

    Case is ignored, and the classes of digits, word characters and spaces are those of ASCII.
    `overlapped` finds matches that begin inside another one, too. Raises `PatternError`.
    """
    found = _compiled(pattern, _Dialect.PERSONAL_DATA).finditer(
        text, overlapped=overlapped, timeout=_remaining(deadline)
    )
    try:
        for match in found:
            if match.end() > match.start():
                yield match.span()
            if time.monotonic() > deadline:
                raise PatternError(_TOO_LONG)
    except TimeoutError:
        raise PatternError(_TOO_LONG) from None


def _remaining(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)
