"""Shards: which part of a group a run is, which other parts there are, and all of them as one run.

Of a shard that ran several times, the latest run that finished counts, else the latest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.counted_runs import GroupName, group_of
from kindlm.history.group_plans import find_difference
from kindlm.history.runs import find_run, state_of

__all__ = ["Group", "Shard", "ShardRun", "find_group", "find_run_or_group", "read_shard"]

_OTHERS = """
SELECT shard, max(ended = 'finished') FROM runs
 WHERE group_id = ? AND project = ? AND shard LIKE '%/' || ?
 GROUP BY shard
"""

# Only what was carried out: a run derived from a shard is none.
_RUNS = """
SELECT r.project, r.shard, r.id, r.ended, s.head
  FROM runs r
  LEFT JOIN seals s ON s.run = r.id
 WHERE r.group_id = ? AND r.shard IS NOT NULL AND r.mode = 'live'
 ORDER BY r.ended IS 'finished' DESC, r.started_at DESC, r.id
"""

_LABELLED = """
SELECT count(DISTINCT r.shard)
  FROM run_list l
  JOIN runs r ON r.id = l.run
 WHERE l.label = ? AND r.project = ? AND r.group_id = ?
"""


@dataclass(frozen=True, slots=True)
class ShardRun:
    """A run of part `index` of a group.

    `state` is finished, interrupted, aborted, running or killed; `head` the last hash of a run that
    finished.
    """

    index: int
    run: str
    state: str
    head: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """The shards of a run, to be read as one.

    `shards` are the runs that count, in the order of their indices; `replaced` those that another
    run of their shard counts for.
    """

    name: str
    count: int
    shards: tuple[ShardRun, ...]
    replaced: tuple[ShardRun, ...] = ()

    @property
    def runs(self) -> tuple[str, ...]:
        """The ids of the runs that count."""
        return tuple(shard.run for shard in self.shards)

    @property
    def missing(self) -> tuple[int, ...]:
        """The parts that the history does not have."""
        here = {shard.index for shard in self.shards}
        return tuple(index for index in range(1, self.count + 1) if index not in here)

    @property
    def unfinished(self) -> tuple[ShardRun, ...]:
        """The parts of which no run finished."""
        return tuple(shard for shard in self.shards if shard.state != "finished")

    @property
    def complete(self) -> bool:
        """Whether all parts are here and finished."""
        return not self.missing and not self.unfinished


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


def find_run_or_group(db: sqlite3.Connection, wanted: str) -> Result[str | Group]:
    """Return what a user names: a run by its id, a group by its name, else as `find_run` does.

    Shards of different plans are no group but an error, and so are those of several projects. A
    label that several shards of a group have means the group, and so does `latest` if the latest
    run is one of several; there it is the run alone that shards of different plans leave.
    """
    is_run = db.execute("SELECT 1 FROM runs WHERE id = ?", (wanted,)).fetchone()
    found = [] if is_run or wanted == "latest" else db.execute(_RUNS, (wanted,)).fetchall()
    if found:
        return _group(db, wanted, found)
    run = find_run(db, wanted)
    if isinstance(run, Err):
        return run
    name = group_of(db, run.value)
    if name is None:
        return Ok(run.value)
    if wanted == "latest":
        group = find_group(db, name)
        return group if isinstance(group, Ok) else Ok(run.value)
    labelled = db.execute(_LABELLED, (wanted, *name)).fetchone()[0]
    return find_group(db, name) if labelled > 1 else Ok(run.value)


def find_group(db: sqlite3.Connection, wanted: GroupName) -> Result[str | Group]:
    """Return a group of which there are shards; shards of different plans are an error."""
    rows = db.execute(_RUNS, (wanted.name,)).fetchall()
    return _group(db, wanted.name, [row for row in rows if row[0] == wanted.project])


def _group(
    db: sqlite3.Connection, wanted: str, found: Sequence[sqlite3.Row]
) -> Result[str | Group]:
    if len({row[0] for row in found}) > 1:
        return Err(_several_projects(wanted, sorted({row[0] for row in found})))
    counting: dict[str, ShardRun] = {}
    replaced = []
    for _, shard, run, ended, head in sorted(found, key=lambda row: int(row[1].partition("/")[0])):
        this = ShardRun(int(shard.partition("/")[0]), run, state_of(db, run, ended), head)
        if counting.setdefault(shard, this) is not this:
            replaced.append(this)
    difference = find_difference(db, {shard: this.run for shard, this in counting.items()})
    if difference is not None:
        return Err(_different_plans(wanted, difference))
    count = int(found[0][1].partition("/")[2])
    return Ok(Group(wanted, count, tuple(counting.values()), tuple(replaced)))


def _several_projects(group: str, projects: list[str]) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"Group {group!r} has shards of several projects: {', '.join(projects)}.",
        "Name one of its runs: kindlm runs",
    )


def _different_plans(group: str, difference: str) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"The shards of group {group!r} are not parts of one run: {difference}.",
        "Name one of its runs (kindlm runs lists them), or run all shards again with another"
        " --run-group.",
    )
