"""The suites of a side of a comparison."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from kindlm.history.queries import among

__all__ = ["Suite", "read_suites"]

_SUITES = """
SELECT id, ordinal, project, name, config_hash, config_ref, error_code IS NOT NULL AS broken
  FROM suites WHERE run IN $ids ORDER BY ordinal, started_at
"""


class Suite(NamedTuple):
    """A suite, with its ids in the runs that are read as one; a broken one was not loaded."""

    parts: tuple[str, ...]
    project: str | None
    name: str
    config_hash: str | None
    config: str | None
    broken: bool


def read_suites(db: sqlite3.Connection, runs: Sequence[str]) -> tuple[Suite, ...]:
    """Return the suites of a run, or of several that are read as one, in order."""
    rows = db.execute(among(_SUITES, runs), runs)
    return tuple(_suite(list(parts)) for _, parts in groupby(rows, key=lambda row: row["ordinal"]))


def _suite(parts: list[sqlite3.Row]) -> Suite:
    # What one of the shards could not load has not been run as a whole.
    row = next((row for row in parts if row["broken"]), parts[0])
    return Suite(
        tuple(part["id"] for part in parts),
        row["project"],
        row["name"],
        row["config_hash"],
        row["config_ref"],
        bool(row["broken"]),
    )
