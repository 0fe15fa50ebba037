"""Spans of a text: where in it something begins, and where that ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Span = tuple[int, int]


def merged(spans: Iterable[Span]) -> Iterator[Span]:
    """Spans in the order of their starts, those that overlap as one."""
    covered: Span | None = None
    for start, end in spans:
        if covered and start < covered[1]:
            covered = (covered[0], max(covered[1], end))
        else:
            if covered:
                yield covered
            covered = (start, end)
    if covered:
        yield covered
