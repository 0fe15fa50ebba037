"""Tables for people: columns as wide as what is in them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len


def aligned(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the cells of a table, each filled up to the width of its column on a terminal."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return [
        [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        for row in rows
    ]
