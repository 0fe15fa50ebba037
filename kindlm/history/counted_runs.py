"""The runs that words such as `latest` count: carried out, finished, of the same suites.

The shards of a group are counted as the one run that they are, where several of them are in the
history: nobody means one worker of many by the newest run. As long as one of them is missing or did
not finish, neither did the group. A shard that is alone there, as on a machine that ran no other,
is a run like any other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["FINISHED", "Counted", "GroupName", "group_of", "runs_alone", "runs_and_groups"]

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
SELECT r.id, r.started_at, r.shard, r.git_commit, r.git_dirty IS TRUE, r.project, r.group_id
{FINISHED}
 ORDER BY r.started_at DESC, r.id
"""

_GROUPS = """
WITH parts AS (
  SELECT project, group_id, shard, substr(shard, instr(shard, '/') + 1) AS number,
         ended IS 'finished' AS is_finished
    FROM runs WHERE shard IS NOT NULL AND group_id IS NOT NULL AND mode = 'live')
SELECT project, group_id,
       count(DISTINCT number) = 1
       AND count(DISTINCT CASE WHEN is_finished THEN shard END) = CAST(max(number) AS INTEGER)
  FROM parts
 GROUP BY project, group_id HAVING count(DISTINCT shard) > 1
"""


class GroupName(NamedTuple):
    """What a group is known by."""

    project: str
    name: str


class Counted(NamedTuple):
    """A run that counts; or, named by `group`, the newest run of one.

    `at` is when it started, `commit` what git told of it, `is_dirty` whether there were changes.
    """

    run: str
    at: str
    shard: str | None
    commit: str | None
    is_dirty: bool
    group: GroupName | None = None


def runs_alone(db: sqlite3.Connection, of: str | None) -> Iterator[Counted]:
    """Yield the runs of the suites of a run, or of all, the newest first; each shard by itself."""
    for run, at, shard, commit, is_dirty, *_ in db.execute(_NEWEST, {"of": of}):
        yield Counted(run, at, shard, commit, bool(is_dirty))


def runs_and_groups(db: sqlite3.Connection, of: str | None) -> Iterator[Counted]:
    """Yield the same, but each group that is complete once, where its newest run is."""
    groups = _groups_here(db)
    seen = set()
    for run, at, shard, commit, is_dirty, *named in db.execute(_NEWEST, {"of": of}):
        group = GroupName(*named)
        if shard is None or group not in groups:
            yield Counted(run, at, shard, commit, bool(is_dirty))
        elif groups[group] and group not in seen:
            seen.add(group)
            yield Counted(run, at, shard, commit, bool(is_dirty), group)


def group_of(db: sqlite3.Connection, run: str) -> GroupName | None:
    """Return the group of a shard; None for other runs, and where no other shard of it is here."""
    own = "SELECT project, group_id FROM runs WHERE id = ? AND shard IS NOT NULL"
    row = db.execute(own, (run,)).fetchone()
    group = GroupName(*row) if row else None
    return group if group in _groups_here(db) else None


def _groups_here(db: sqlite3.Connection) -> dict[GroupName, bool]:
    """Return the groups of which the history has more than one shard, and whether it has all."""
    return {GroupName(row[0], row[1]): bool(row[2]) for row in db.execute(_GROUPS)}
