"""Rows inserted many at a time.

A statement lets go of Python's global lock while it runs and must get it back afterwards, which
takes up to 5 ms beside a busy thread. One statement for many rows meets that once, and SQLite works
while the other thread does.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

_SIZES = (512, 256, 128, 64, 32, 16, 8, 4, 2, 1)
"""Rows per statement: so few sizes that the connection keeps the statements prepared."""


@lru_cache(maxsize=512)
def _statement(insert: str, width: int, rows: int, ending: str) -> str:
    row = f"({','.join('?' * width)})"
    return f"{insert} VALUES {','.join([row] * rows)} {ending}"


def insert_rows(
    connection: sqlite3.Connection, insert: str, rows: Sequence[Sequence[object]], ending: str = ""
) -> None:
    """Insert rows in order.

    Args:
        connection: Where.
        insert: The statement up to VALUES.
        rows: As many values each as the statement names columns; at least one row.
        ending: What follows the values: a conflict clause.
    """
    start, width = 0, len(rows[0])
    for size in _SIZES:
        text = _statement(insert, width, size, ending)
        while len(rows) - start >= size:
            values = chain.from_iterable(rows[start : start + size])
            connection.execute(text, tuple(values))
            start += size
