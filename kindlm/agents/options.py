"""Options of adapters: strict, as everything that users write."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["unknown_name"]


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Return the advice for a name that is not known: the nearest one, else all."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(names)}"
