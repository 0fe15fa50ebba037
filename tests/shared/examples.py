"""How many examples Hypothesis draws for a property."""

from __future__ import annotations

import os
from typing import Any, Final

from hypothesis import settings

_ALL: Final = bool(os.environ.get("KINDLM_ALL_EXAMPLES"))
_SHARE, _LEAST = 4, 10


def drawn(count: int) -> int:
    """Return how many of so many examples are drawn: a fourth, or all with KINDLM_ALL_EXAMPLES.

    What a change breaks, the first examples find nearly always; the rest are for a long search.
    """
    return count if _ALL else max(min(count, _LEAST), count // _SHARE)


def examples(count: int, **more: Any) -> settings:
    """Return the settings of a property that so many examples make sure of."""
    return settings(max_examples=drawn(count), **more)
