"""Shards: which part of a group a run is, and which other parts the history has."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

__all__ = ["Shard", "read_shard"]

_OTHERS = """
SELECT shard, max(ended = 'finished') FROM runs
 WHERE group_id = ? AND project = ? AND shard LIKE '%/' || ?
 GROUP BY shard
"""


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `index` of `count` of a group, from 1; no group if none was named.

    `missing` are the parts that the history does not have, `unfinished` those of which it has no
    run that finished. A part that ran several times counts as the best of them.
    """

    index: int
    count: int
    group: str | None
    missing: tuple[int, ...] = ()
    unfinished: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return it as `--shard` takes it."""
        return self.name(self.index)

    def name(self, index: int) -> str:
        """Return the name of another part of the group."""
        return f"{index}/{self.count}"


def read_shard(
    db: sqlite3.Connection, project: str, shard: str | None, group: str | None
) -> Shard | None:
    """Return what a run of a project is a part of; None for a run that is whole."""
    if shard is None:
        return None
    index, count = map(int, shard.split("/"))
    if group is None:
        return Shard(index, count, None)
    finished = {
        int(name.partition("/")[0]): bool(ended)
        for name, ended in db.execute(_OTHERS, (group, project, count))
    }
    parts = range(1, count + 1)
    return Shard(
        index,
        count,
        group,
        tuple(part for part in parts if part not in finished),
        tuple(part for part in parts if finished.get(part) is False),
    )
