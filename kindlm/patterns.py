"""Users' regular expressions with limits for size and time; personal data in text.

Patterns search text of models, and some need exponential time. Unlike the standard library, `regex`
has a timeout, and lets other threads run while it searches. The timeout is processor time of the
whole process, so it is longer on a busy machine, and shorter if other threads compute.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

from kindlm.normal_form import meanings_of, normal_form
from kindlm_store.redaction import merged

if TYPE_CHECKING:
    import regex


_MAX_CHARACTERS = 10_000
"""The longest pattern: one with a class of a million characters compiles for ten seconds."""

_MAX_PARTS = 100_000
"""The most parts of a pattern with repeats written out, as the engine does; they take 25 MB."""

_PARTS = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*+(?:\]|\Z)"
    r"|\((?:\?[:=!>|])?|\)|\{([0-9]+)(?:,[0-9]*)?\}|.",
    re.DOTALL,
)
"""Matches a character, a class, the beginning or end of a group, or a repeat."""

_TOO_LONG = "it took too long"

_ENDLESS = "it calls itself without an end"
"""The engine lacks memory for `(?R)?`, which may match nothing before it calls itself."""

_PATTERN_S = 2.0
"""How long a pattern may take in one text, for `matcher`."""


class PatternError(Exception):
    """A pattern does not compile, or takes too long."""


class Dialect(Enum):
    """The flags of a pattern, by its purpose."""

    SCHEMA = ""
    PERSONAL_DATA = "ia"
    OUTPUT = "is"


def excess_of(pattern: str) -> str | None:
    """Return the limit that a pattern exceeds, such as `more than 10,000 characters`, or None."""
    if len(pattern) > _MAX_CHARACTERS:
        return f"more than {_MAX_CHARACTERS:,} characters"
    if _parts_of(pattern) > _MAX_PARTS:
        return f"more than {_MAX_PARTS:,} parts, counting repeats"
    return None


def _parts_of(pattern: str) -> int:
    # For each open group, the number of its parts, and that of the part that a repeat is for.
    groups = [(0, 0)]
    for found in _PARTS.finditer(pattern):
        parts, last = groups[-1]
        if found[0][0] == "(":
            groups.append((0, 0))
            continue
        if found[0] == ")" and len(groups) > 1:
            last, (parts, _) = parts, groups[-2]
            groups.pop()
            parts += last
        elif found[1] is not None:
            # The engine also compiles a part that is repeated 0 times.
            more = last * (max(int(found[1][:9]), 1) - 1)
            parts, last = parts + more, last + more
        else:
            parts, last = parts + 1, 1
        groups[-1] = parts, last
    return sum(parts for parts, _ in groups)


@lru_cache(maxsize=512)
def _compiled(pattern: str, dialect: Dialect) -> regex.Pattern[str]:
    import regex

    if (excess := excess_of(pattern)) is not None:
        raise PatternError(f"it has {excess}")
    flags = 0
    for letter in dialect.value:
        flags |= {"i": regex.IGNORECASE, "a": regex.ASCII, "s": regex.DOTALL}[letter]
    try:
        return regex.compile(pattern, flags)
    except (regex.error, ValueError, RecursionError, OverflowError) as error:
        raise PatternError(f"it does not compile: {error}") from None


def first_match(
    pattern: str, text: str, deadline: float, dialect: Dialect = Dialect.SCHEMA
) -> tuple[int, int] | None:
    """Return the range of the first match of a pattern in a text, or None.

    `deadline` is a time of the monotonic clock. It raises `PatternError`.
    """
    try:
        found = _compiled(pattern, dialect).search(text, timeout=_remaining(deadline))
    except TimeoutError:
        raise PatternError(_TOO_LONG) from None
    except MemoryError:
        raise PatternError(_ENDLESS) from None
    return found.span() if found else None


# Of its matches, only those with a valid check digit count as cards.
_CARD_PATTERN = r"\b\d{4}[\s-]?\d{4}[\s-]?\d{4}[\s-]?\d{4}\b"

DEFAULT_PATTERNS = {
    r"\b\d{3}-\d{2}-\d{4}\b": "ssn",
    _CARD_PATTERN: "credit card",
    r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Z|a-z]{2,}\b": "email",
}
"""The patterns for a suite without its own, and the names of their findings."""


def personal_data_in(text: str, pattern: str, deadline: float) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a text that a pattern matches, in order and without overlaps.

    Matches in the normal form of the text count, too; those of the card pattern only if they are
    card numbers. `deadline` is a time of the monotonic clock. It raises `PatternError`.
    """
    form = normal_form(text)
    here = _matches_in(text, pattern, deadline)
    if form is None:
        # Matches count even if the pattern then takes too long. Only cards may overlap.
        yield from merged(here) if pattern == _CARD_PATTERN else here
        return
    found = [*here]
    found += (form.written(*place) for place in _matches_in(form.text, pattern, deadline))
    yield from merged(sorted(found))


def _matches_in(text: str, pattern: str, deadline: float) -> Iterator[tuple[int, int]]:
    """Yield the ranges of matches that are not empty."""
    is_card = pattern == _CARD_PATTERN
    # A card number may begin within 16 other digits.
    found = _compiled(pattern, Dialect.PERSONAL_DATA).finditer(
        text, overlapped=is_card, timeout=_remaining(deadline)
    )
    try:
        for match in found:
            if match.end() > match.start() and (not is_card or passes_luhn(match[0])):
                yield match.span()
            if time.monotonic() > deadline:
                raise PatternError(_TOO_LONG)
    except TimeoutError:
        raise PatternError(_TOO_LONG) from None
    except MemoryError:
        raise PatternError(_ENDLESS) from None


def passes_luhn(text: str) -> bool:
    """Return whether the digits in a text end with a valid check digit, as in card numbers."""
    digits = [int(char) for char in reversed(text) if char in "0123456789"]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _remaining(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that returns whether a pattern matches a text or any reading of it.

    For readings see `normal_form.meanings_of`. It raises `PatternError`.
    """

    def matches(text: str) -> bool:
        return any(
            first_match(pattern, reading, time.monotonic() + _PATTERN_S) is not None
            for reading in meanings_of(text)
        )

    return matches
