"""The runs that words such as `latest` count: carried out, finished, of the same suites.

The shards of a group are counted as the one run that they are, where several of them are in the
history: nobody means one worker of many by the newest run. A shard that is alone there, as on a
machine that ran no other, is a run like any other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["FINISHED", "Counted", "group_of", "runs_alone", "runs_and_groups"]

# Of the suites of a run, those that it could load, by project and name.
FINISHED = """
  FROM runs r
 WHERE r.ended = 'finished' AND r.mode = 'live'
   AND (:of IS NULL OR EXISTS (
          SELECT 1 FROM suites mine
            JOIN suites theirs ON theirs.run = :of AND theirs.name = mine.name
                 AND coalesce(theirs.project, mine.project) = mine.project
           WHERE mine.run = r.id AND mine.error_code IS NULL))
"""
"""What is counted, to be selected from as `r`; of the suites of the run `:of`, null for all."""

_NEWEST = f"""
SELECT r.id, r.started_at, r.shard, r.group_id, r.project {FINISHED}
 ORDER BY r.started_at DESC, r.id
"""

_GROUPS = """
SELECT project, group_id FROM runs
 WHERE shard IS NOT NULL AND group_id IS NOT NULL AND mode = 'live'
 GROUP BY project, group_id HAVING count(DISTINCT shard) > 1
"""


class Counted(NamedTuple):
    """A run that counts, and when it started; or, named by `group`, the newest run of one."""

    run: str
    at: str
    shard: str | None
    group: str | None = None


def runs_alone(db: sqlite3.Connection, of: str | None) -> Iterator[Counted]:
    """Yield the runs of the suites of a run, or of all, the newest first; each shard by itself."""
    for run, at, shard, _, _ in db.execute(_NEWEST, {"of": of}):
        yield Counted(run, at, shard)


def runs_and_groups(db: sqlite3.Connection, of: str | None) -> Iterator[Counted]:
    """Yield the same, but each group once, where its newest run is."""
    several = _groups_here(db)
    seen = set()
    for run, at, shard, group, project in db.execute(_NEWEST, {"of": of}):
        if shard is None or (project, group) not in several:
            yield Counted(run, at, shard)
        elif (project, group) not in seen:
            seen.add((project, group))
            yield Counted(run, at, shard, group)


def group_of(db: sqlite3.Connection, run: str) -> str | None:
    """Return the group of a shard; None for other runs, and where no other shard of it is here."""
    own = "SELECT project, group_id FROM runs WHERE id = ? AND shard IS NOT NULL"
    row = db.execute(own, (run,)).fetchone()
    return row[1] if row and tuple(row) in _groups_here(db) else None


def _groups_here(db: sqlite3.Connection) -> set[tuple[str, str]]:
    """Return project and name of the groups of which the history has more than one shard."""
    return {(row[0], row[1]) for row in db.execute(_GROUPS)}
