"""The runs that a comparison can be asked for: the newest, or those of the suites of one."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from kindlm.projections.naming import RUN_LABEL

__all__ = ["RunChoice", "read_run_choices"]

_CHOICES = f"""
SELECT r.id, {RUN_LABEL} AS label, r.started_at, r.mode, r.passed
  FROM runs r
  LEFT JOIN run_labels l ON l.run = r.id
 WHERE :like IS NULL OR EXISTS (
         SELECT 1 FROM suites mine
           JOIN suites theirs ON theirs.run = :like AND theirs.name = mine.name
          WHERE mine.run = r.id)
 ORDER BY r.started_at DESC, r.id
 LIMIT :limit
"""  # noqa: S608 (constants of this package)


class RunChoice(NamedTuple):
    """A run to choose; `passed` is the verdict as it was told, None if there was none."""

    id: str
    label: str | None
    started_at: str
    mode: str
    passed: bool | None


def read_run_choices(
    db: sqlite3.Connection, like: str | None, limit: int = 100
) -> tuple[RunChoice, ...]:
    """Return the newest runs; with `like`, those that have a suite in common with that run."""
    rows = db.execute(_CHOICES, {"like": like, "limit": limit})
    return tuple(RunChoice(*row) for row in rows)
