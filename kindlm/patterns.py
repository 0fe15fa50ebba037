"""Users' regular expressions, bounded in size and time; personal data in a text.

Patterns search text that a model wrote, and some need time exponential in its length. Unlike the
standard library, the `regex` engine has a timeout, and lets other threads run while it searches.
The timeout is processor time of the whole process: it lasts longer on a busy machine, and less long
if other threads compute. `regex` is imported when a pattern is first needed.
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
"""How many characters a pattern may have: a class of a million takes ten seconds to compile."""

_MAX_PARTS = 100_000
"""How many parts a pattern may have once repeats are written out, as the engine does: 25 MB."""

_PARTS = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*+(?:\]|\Z)"
    r"|\((?:\?[:=!>|])?|\)|\{([0-9]+)(?:,[0-9]*)?\}|.",
    re.DOTALL,
)
"""A character or a class, the beginning or the end of a group, or a repeat of what is before it."""

_TOO_LONG = "it took too long"

_PATTERN_S = 2.0
"""Seconds that a pattern may take in one text."""


class PatternError(Exception):
    """A pattern that cannot be used on a text: it does not compile, or takes too long."""


class Dialect(Enum):
    """How a pattern is read, after what it is for: letters of flags."""

    SCHEMA = ""
    PERSONAL_DATA = "ia"
    OUTPUT = "is"


def excess_of(pattern: str) -> str | None:
    """Return of what a pattern has too much to be compiled, None if it has not."""
    if len(pattern) > _MAX_CHARACTERS:
        return f"more than {_MAX_CHARACTERS:,} characters"
    if _parts_of(pattern) > _MAX_PARTS:
        return f"more than {_MAX_PARTS:,} parts, counting repeats"
    return None


def _parts_of(pattern: str) -> int:
    # Of each open group, the outermost first: the number of its parts, and of the last one's.
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
            # What is repeated 0 times is compiled all the same.
            more = last * (max(int(found[1][:9]), 1) - 1)
            parts, last = parts + more, last + more
        else:
            parts, last = parts + 1, 1
        groups[-1] = parts, last
    return sum(parts for parts, _ in groups)


@lru_cache(maxsize=512)
def _compiled(pattern: str, dialect: Dialect) -> regex.Pattern[str]:
    import regex

    excess = excess_of(pattern)
    if excess is not None:
        raise PatternError(f"it has {excess}")
    flags = 0
    for letter in dialect.value:
        flags |= {"i": regex.IGNORECASE, "a": regex.ASCII, "s": regex.DOTALL}[letter]
    try:
        return regex.compile(pattern, flags)
    except (regex.error, RecursionError, OverflowError) as error:
        raise PatternError(f"it does not compile: {error}") from None


def searches(pattern: str, text: str, deadline: float, dialect: Dialect = Dialect.SCHEMA) -> bool:
    """Return whether a pattern matches anywhere in a text.

    Of an output, case is ignored and `.` matches line breaks. `deadline` is a time of the monotonic
    clock. Raises `PatternError`.
    """
    return first_match(pattern, text, deadline, dialect) is not None


def first_match(
    pattern: str, text: str, deadline: float, dialect: Dialect = Dialect.SCHEMA
) -> tuple[int, int] | None:
    """Return the range of a text that a pattern matches first, as `searches` does; else None."""
    try:
        found = _compiled(pattern, dialect).search(text, timeout=_remaining(deadline))
    except TimeoutError:
        raise PatternError(_TOO_LONG) from None
    return found.span() if found else None


# Any 16 digits fit it; only what has a valid check digit is taken for a card.
_CARD_PATTERN = r"\b\d{4}[\s-]?\d{4}[\s-]?\d{4}[\s-]?\d{4}\b"

DEFAULT_PATTERNS = {
    r"\b\d{3}-\d{2}-\d{4}\b": "ssn",
    _CARD_PATTERN: "credit card",
    r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Z|a-z]{2,}\b": "email",
}
"""What is looked for where a suite names no patterns, and what a finding is called."""


def personal_data_in(text: str, pattern: str, deadline: float) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a text that a pattern matches, in order and without overlaps.

    What only the normal form of the text shows counts, too. Of the card pattern only what is a
    card counts. `deadline` is a time of the monotonic clock.
    Raises `PatternError` for a pattern that does not compile, or takes too long.
    """
    form = normal_form(text)
    here = _matches_in(text, pattern, deadline)
    if form is None:
        # What was found counts, even if the pattern then takes too long. Cards alone overlap.
        yield from merged(here) if pattern == _CARD_PATTERN else here
        return
    found = [*here]
    found += (form.written(*place) for place in _matches_in(form.text, pattern, deadline))
    yield from merged(sorted(found))


def _matches_in(text: str, pattern: str, deadline: float) -> Iterator[tuple[int, int]]:
    """Yield the ranges that a pattern matches, empty ones left out.

    Case is ignored, and the classes of digits, word characters and spaces are those of ASCII.
    """
    is_card = pattern == _CARD_PATTERN
    # Overlapping, since a card may begin inside 16 digits that are not a card, or only look so.
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


def passes_luhn(text: str) -> bool:
    """Return whether the digits in a text end with a valid check digit, as those of cards do."""
    digits = [int(char) for char in reversed(text) if char in "0123456789"]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _remaining(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return what says whether a text matches, as it is or as the JSON in it says it.

    What it says in pieces counts, too, as the body of a stream does.

    It raises `PatternError` if the pattern cannot be used.
    """

    def matches(text: str) -> bool:
        return any(
            searches(pattern, reading, time.monotonic() + _PATTERN_S)
            for reading in meanings_of(text)
        )

    return matches
