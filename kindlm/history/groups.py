"""Groups of shards: finds the shards of a divided run, and reads them as one run.

If a shard ran several times, its latest finished run counts, else its latest run. The shards of a
group must have the same suites and the same selection, so that they have every test exactly once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, Ok, Result, misuse
from kindlm.history.queries import among
from kindlm.history.runs import Run, RunFilter, options_of, runs

_T = TypeVar("_T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Group:
    """The shards of a run, which are read as one run.

    `shards` are the runs that count, by index; those in `replaced` do not, since others have their
    shard.
    """

    name: str
    count: int
    shards: tuple[Run, ...]
    replaced: tuple[Run, ...]

    @property
    def runs(self) -> tuple[str, ...]:
        """The ids of the runs that count."""
        return tuple(shard.id for shard in self.shards)

    @property
    def missing(self) -> tuple[int, ...]:
        """The indices of the shards that are not in the history."""
        here = {shard.index for shard in self.shards}
        return tuple(index for index in range(1, self.count + 1) if index not in here)

    @property
    def unfinished(self) -> tuple[Run, ...]:
        """The shards without a finished run."""
        return tuple(shard for shard in self.shards if shard.state != "finished")

    @property
    def complete(self) -> bool:
        """Whether all shards are in the history and finished."""
        return not self.missing and not self.unfinished

    @property
    def lacking(self) -> list[tuple[str, str]]:
        """The shards, as `i/n`, that are missing or unfinished, each with its state in words."""
        lacking = [(index, "is not here") for index in self.missing]
        for shard in self.unfinished:
            verb = "is" if shard.state == "running" else "was"
            lacking.append((shard.index, f"{verb} {shard.state} (run {shard.id})"))
        return [(f"{index}/{self.count}", state) for index, state in sorted(lacking)]

    @property
    def what_lacks(self) -> str:
        """The shards that are missing or unfinished, in words; "" if the group is complete."""
        return ", ".join(f"shard {shard} {state}" for shard, state in self.lacking)


def shards_of(db: sqlite3.Connection, name: str | None, project: str | None = None) -> list[Run]:
    """Return the live shards of groups of a name, of one project or of all, the newest first."""
    found = runs(db, RunFilter(group=name)) if name else ()
    shards = [run for run in found if run.shard is not None and run.mode == "live"]
    return [run for run in shards if project in (None, run.project)]


def read_group(db: sqlite3.Connection, run: Run) -> Group | None:
    """Return the group that a run is a shard of; None for a whole run, and without a name."""
    alike = [
        each for each in shards_of(db, run.group_id, run.project) if _count(each) == _count(run)
    ]
    return _group(run.group_id or "", alike) if run.shard and alike else None


def whole_of(db: sqlite3.Connection, run: str) -> Sequence[str]:
    """Return the runs of the group that a run is a shard of; the run alone if it is whole."""
    found = (read_group(db, each) for each in runs(db, RunFilter(ids=[run])))
    return next((group.runs for group in found if group is not None), (run,))


def find_group(db: sqlite3.Connection, name: str, shards: Sequence[Run]) -> Result[Group]:
    """Return a group by its shards; shards of several projects or different plans are an error."""
    projects = sorted({run.project for run in shards})
    if len(projects) > 1:
        message = f"Group {name!r} has shards of several projects: {', '.join(projects)}."
        return Err(misuse(message, "Name one of its runs: kindlm runs"))
    group = _group(name, shards)
    difference = _difference(db, group.shards)
    if difference is None:
        return Ok(group)
    message = f"The shards of group {name!r} are not parts of one run: {difference}."
    hint = "Name one of its runs (kindlm runs lists them), or run all shards again with another"
    return Err(misuse(message, f"{hint} --run-group."))


def group_of(db: sqlite3.Connection, ids: Sequence[str]) -> Group:
    """Return the group that consists of these runs."""
    shards = list(runs(db, RunFilter(ids=ids)))
    return _group(shards[0].group_id or "", shards)


def _group(name: str, shards: Iterable[Run]) -> Group:
    # Finished runs of a shard first; the sort keeps the newest first.
    ordered = sorted(shards, key=lambda run: (run.index, run.ended != "finished"))
    counting: dict[str | None, Run] = {}
    for run in ordered:
        counting.setdefault(run.shard, run)
    replaced = tuple(run for run in ordered if counting[run.shard] is not run)
    return Group(name, _count(ordered[0]), tuple(counting.values()), replaced)


def _count(shard: Run) -> int:
    return int((shard.shard or "0").rpartition("/")[2])


def as_one_run(group: Group) -> Run:
    """Return a group as a run; fields in which its shards differ are None."""
    shards = group.shards
    commit, branch = _agreed((run.git_commit, run.git_branch) for run in shards) or (None, None)
    ended = [run.finished_at for run in shards if run.finished_at is not None]
    whole = group.complete
    return replace(
        shards[0],
        id=group.name,
        label=_agreed(run.label for run in shards),
        planned=sum(run.planned for run in shards),
        started_at=min(run.started_at for run in shards),
        finished_at=max(ended) if whole else None,
        ended="finished" if whole else "incomplete",
        reason=None if whole else group.what_lacks,
        passed=None,
        duration_ms=sum(run.duration_ms or 0.0 for run in shards) if whole else None,
        git_commit=commit,
        git_branch=branch,
        git_dirty=any(run.git_dirty for run in shards) if commit else None,
        ci=_agreed(run.ci for run in shards),
        kindlm_version=", ".join(sorted({run.kindlm_version for run in shards})),
        source_run=None,
        shard=None,
        head=None,
        suites=tuple(dict.fromkeys(suite for run in shards for suite in run.suites)),
    )


def _agreed(values: Iterable[_T]) -> _T | None:
    different = set(values)
    return different.pop() if len(different) == 1 else None


# A suite that a shard lacks, or that has another configuration than in the first shard with it. A
# suite that could not be loaded, or that `--force-resume` allowed to change, counts as equal to
# any. A run that just began may not have recorded all suites yet.
_DIFFERENT_SUITES = """
WITH
  forced AS MATERIALIZED (
    SELECT s.id
      FROM runs r
     CROSS JOIN event_log e ON e.stream = 'run/' || r.id
     CROSS JOIN suites s ON s.run = r.id
     WHERE r.id IN $ids
       AND (e.type = 'run.started' AND e.data ->> '$.options.force_resume'
            OR e.type = 'run.resumed'
               AND s.name IN (SELECT value FROM json_each(e.data, '$.changed')))),
  theirs AS (
    SELECT run, ordinal, path,
           CASE WHEN error_code IS NULL AND id NOT IN forced THEN config_hash END AS hash
      FROM suites WHERE run IN $ids),
  firsts AS (SELECT *, max(hash IS NOT NULL) FROM theirs GROUP BY ordinal, path)
SELECT f.run, r.id, iif(t.run IS NULL, 'ran different suites',
                        'have different configurations of ' || f.path)
  FROM firsts f
 CROSS JOIN runs r ON r.id IN $ids
  LEFT JOIN theirs t ON (t.run, t.ordinal, t.path) = (r.id, f.ordinal, f.path)
 WHERE t.hash <> f.hash
    OR t.run IS NULL AND (r.ended IS 'finished'
                          OR EXISTS (SELECT 1 FROM executions WHERE run = r.id))
 ORDER BY t.run IS NOT NULL, f.ordinal, r.id LIMIT 1
"""

_SELECTED = """
SELECT s.run, s.ordinal, p.test, p.target
  FROM suites s
  JOIN planned_tests p ON p.suite = s.id
 WHERE s.run IN $ids AND p.selected
 ORDER BY s.ordinal, p.ordinal, s.run
"""

SELECTING = (
    "paths", "suite", "tests", "tags", "models", "keywords", "repeat", "gate", "failed", "compat",
    "runner",
)  # fmt: skip
"""The recorded options that decide what is run, and how it is judged."""


def _difference(db: sqlite3.Connection, shards: Sequence[Run]) -> str | None:
    """Return why runs are not parts of one plan; None if they are."""
    named = {run.id: f"shard {run.shard} (run {run.id})" for run in shards}
    first, count = shards[0].id, _count(shards[0])
    for run in shards:
        if _count(run) != count:
            return f"{named[first]} and {named[run.id]} have different numbers of shards"
    for one, other, difference in db.execute(*among(_DIFFERENT_SUITES, list(named))):
        return f"{named[one]} and {named[other]} {difference}"
    options = options_of(db, *named)
    for run_id, called in named.items():
        for name in SELECTING:
            # An option without a value may be absent, false or empty.
            if (options[run_id].get(name) or None) != (options[first].get(name) or None):
                return f"{named[first]} and {called} ran with different options ({name})"
    whose: dict[tuple[str, ...], str] = {}
    for run_id, *test in db.execute(*among(_SELECTED, list(named))):
        if (one := whose.setdefault(tuple(test), run_id)) != run_id:
            _, name, target = test
            return f"{named[one]} and {named[run_id]} both have the test {name!r} on {target}"
    if options[first].get("failed") and len(shards) == count:
        # Tests are dealt in turn, unless another shard had passed some before `--failed` chose.
        indices = {run.id: run.index for run in shards}
        if any(indices[run] != at % count + 1 for at, run in enumerate(whose.values())):
            return "each shard selected among different failed tests (--failed)"
    return None
