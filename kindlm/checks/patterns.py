"""Regular expressions that a user wrote, bounded in time.

They run over text that a model wrote, and some need time exponential in its length. The `regex`
engine gives up after a timeout, which the standard library's cannot. It is imported when a pattern
is first needed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex

__all__ = ["PatternError", "compiled", "searches"]


class PatternError(Exception):
    """A pattern that cannot be used on a text: it does not compile, or takes too long."""


@lru_cache(maxsize=512)
def compiled(pattern: str, *, ascii_ignoring_case: bool = False) -> regex.Pattern[str]:
    """Return the compiled pattern; raise `PatternError` if there is an error in it."""
    import regex

    flags = regex.IGNORECASE | regex.ASCII if ascii_ignoring_case else 0
    try:
        return regex.compile(pattern, flags)
    except (regex.error, RecursionError, OverflowError) as error:
        raise PatternError(f"it does not compile: {error}") from None


def searches(pattern: str, text: str, timeout_s: float) -> bool:
    """Tell whether a pattern matches anywhere in a text; raise `PatternError` if it can't."""
    try:
        return compiled(pattern).search(text, timeout=timeout_s) is not None
    except TimeoutError:
        raise PatternError("it took too long") from None
