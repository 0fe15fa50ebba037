"""Which texts hold personal data, and where: the patterns of the suite format, and any others."""

from __future__ import annotations

from collections.abc import Iterator

from kindlm.normal_form import normal_form
from kindlm.patterns import matches_in
from kindlm_store.redaction import merged

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
    if form is None:
        yield from _matches_in(text, pattern, deadline)
        return
    found = [*_matches_in(text, pattern, deadline)]
    found += (form.written(*place) for place in _matches_in(form.text, pattern, deadline))
    yield from merged(sorted(found))


def _matches_in(text: str, pattern: str, deadline: float) -> Iterator[tuple[int, int]]:
    if pattern != _CARD_PATTERN:
        yield from matches_in(pattern, text, deadline, overlapped=False)
        return
    # Overlapping, since a card may begin inside 16 digits that are not a card, or only look so.
    found = matches_in(pattern, text, deadline, overlapped=True)
    yield from merged(place for place in found if passes_luhn(text[slice(*place)]))


def passes_luhn(text: str) -> bool:
    """Return whether the digits in a text end with a valid check digit, as those of cards do."""
    digits = [int(char) for char in reversed(text) if char in "0123456789"]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0
