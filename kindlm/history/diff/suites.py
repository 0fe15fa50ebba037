"""The suites of a side of a comparison."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from kindlm.history.queries import among

__all__ = ["Suite", "read_suites", "unread_tests"]

_SUITES = """
SELECT id, ordinal, project, name, config_hash, config_ref, error_code IS NOT NULL AS broken,
       unread, baseline_run
  FROM suites WHERE run IN $ids ORDER BY ordinal, started_at
"""

_IN_FILES = """
SELECT test, target FROM planned_tests
 WHERE suite IN $ids AND file IN (SELECT value FROM json_each(:files))
"""


class Suite(NamedTuple):
    """A suite, with its ids in the runs that are read as one; a broken one was not loaded.

    Of one of several files, those that are `unread` were not: what they define is not known.
    `baseline` is the run that its drift was measured against.
    """

    parts: tuple[str, ...]
    project: str | None
    name: str
    config_hash: str | None
    config: str | None
    broken: bool
    unread: frozenset[str] = frozenset()
    baseline: str | None = None


def read_suites(db: sqlite3.Connection, runs: Sequence[str]) -> tuple[Suite, ...]:
    """Return the suites of a run, or of several that are read as one, in order."""
    rows = db.execute(*among(_SUITES, runs))
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
        frozenset(file for part in parts for file in json.loads(part["unread"] or "[]")),
        row["baseline_run"],
    )


def unread_tests(
    db: sqlite3.Connection, before: Suite | None, after: Suite | None
) -> frozenset[tuple[str, str]]:
    """Return the tests of a suite, by name and target, whose files could not be loaded after."""
    if before is None or after is None or not after.unread:
        return frozenset()
    files = json.dumps(sorted(after.unread))
    rows = db.execute(*among(_IN_FILES, before.parts, files=files))
    return frozenset((row["test"], row["target"]) for row in rows)
