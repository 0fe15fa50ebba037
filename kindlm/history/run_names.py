"""The runs that a user names: by an id, the beginning of one, a label, a group, or a word.

The words of a comparison are `latest`, `latest~n`, `previous`, `baseline` and `git:REV`. They count
runs that were carried out and finished, of the suites of the other side: what was stopped, rescored
or imported has to be named by its id or label.

Where groups of shards can be named, the shards of a group count as the one run that they are, if
several of them are in the history: nobody means one worker of many by the newest run. As long as
one of them is missing or did not finish, neither did the group. A shard that is alone there, as on
a machine that ran no other, is a run like any other.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeAlias

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.groups import Group, GroupName, find_group, shards_of
from kindlm.history.runs import Run, RunFilter, runs

__all__ = [
    "Revision",
    "RunPair",
    "find_pair",
    "find_run",
    "find_run_or_group",
    "find_sides",
    "latest_finished",
    "run_before",
]

Revision: TypeAlias = Callable[[str], str | None]
"""Returns the full commit that a git revision names; None if there is no git, or no such name."""

_Side: TypeAlias = str | Group

_LATEST = re.compile(r"latest(?:~(\d{1,6}))?", re.ASCII)
_GIT = "git:"
_COMMIT_START = re.compile(r"[0-9a-f]{4,40}")
_LISTED_COMMITS = 5
_SHORT = 8

_NAMED_RUNS = 3
"""How many runs an error names if the one that was asked for is not there."""

_STARTING = """
SELECT id FROM runs WHERE :wanted <> '' AND substr(id, 1, length(:wanted)) = :wanted LIMIT 6
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

_BASELINES = """
SELECT s.name, b.run
  FROM suites s
  LEFT JOIN active_baselines b ON b.project = s.project AND b.suite = s.name
 WHERE s.run = ? AND s.error_code IS NULL
 ORDER BY s.ordinal
"""


def find_run(db: sqlite3.Connection, wanted: str) -> Result[str]:
    """Return the id of the run that a user names: `latest`, an id or its beginning, or a label."""
    if wanted == "latest":
        newest = next(runs(db, RunFilter(limit=1)), None)
        return Ok(newest.id) if newest else Err(_no_runs())
    for named in (RunFilter(ids=[wanted]), RunFilter(labelled=wanted, limit=1)):
        if found := next(runs(db, named), None):
            return Ok(found.id)
    starting = [row[0] for row in db.execute(_STARTING, {"wanted": wanted})]
    if len(starting) == 1:
        return Ok(starting[0])
    return Err(_ambiguous(wanted, starting) if starting else _unknown(db, wanted))


def latest_finished(db: sqlite3.Connection, suite: str | None = None) -> Result[str]:
    """Return the newest live run that is complete, of those that hold a suite if one is named."""
    if found := next(runs(db, RunFilter(completed=True, suite=suite, limit=1)), None):
        return Ok(found.id)
    of_suite = "" if suite is None else f" of suite {suite!r}"
    return Err(_error(f"No run{of_suite} has finished yet.", "List the recorded runs: kindlm runs"))


def find_run_or_group(db: sqlite3.Connection, wanted: str) -> Result[_Side]:
    """Return what a user names: a run by its id, a group by its name, else as `find_run` does.

    Shards of different plans are no group but an error, and so are those of several projects. A
    label that several shards of a group have means the group, and so does `latest` if the latest
    run is one of several; there it is the run alone that shards of different plans leave.
    """
    is_run = next(runs(db, RunFilter(ids=[wanted])), None) is not None
    if not is_run and wanted != "latest" and (shards := shards_of(db, wanted)):
        group = find_group(db, wanted, shards)
        return group if isinstance(group, Err) else Ok(group.value)
    found = find_run(db, wanted)
    if isinstance(found, Err):
        return found
    run = next(runs(db, RunFilter(ids=[found.value])))
    name = _group_of(run)
    if name is None or name not in _groups_here(db):
        return Ok(run.id)
    if wanted == "latest":
        newest = _group_named(db, name)
        return newest if isinstance(newest, Ok) else Ok(run.id)
    labelled = {
        other.shard
        for other in runs(db, RunFilter(labelled=wanted, group=name.name))
        if other.project == name.project and other.shard is not None
    }
    return _group_named(db, name) if len(labelled) > 1 else Ok(run.id)


def _group_of(run: Run) -> GroupName | None:
    if run.shard is None or run.group_id is None:
        return None
    return GroupName(run.project, run.group_id)


def _groups_here(db: sqlite3.Connection) -> dict[GroupName, bool]:
    """Return the groups of which the history has more than one shard, and whether it has all."""
    return {GroupName(row[0], row[1]): bool(row[2]) for row in db.execute(_GROUPS)}


def _group_named(db: sqlite3.Connection, name: GroupName) -> Result[_Side]:
    shards = [run for run in shards_of(db, name.name) if run.project == name.project]
    found = find_group(db, name.name, shards)
    return found if isinstance(found, Err) else Ok(found.value)


class RunPair(NamedTuple):
    """The ids of the runs to compare."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class _Search:
    """Where names are looked up; `joins` if several shards of a group are found as the group."""

    db: sqlite3.Connection
    revision: Revision
    joins: bool


_Counted: TypeAlias = tuple[Run, GroupName | None]
"""A run that counts by itself; or the newest run of a group, which counts as one."""


def find_pair(
    db: sqlite3.Connection, before: str | None, after: str | None, revision: Revision
) -> Result[RunPair]:
    """Return the runs of both sides: `previous` → `latest` where a side is not named.

    A word is about the suites of the other side, so that what is named outright is found first.
    """
    found = _find_both(_Search(db, revision, joins=False), before, after)
    if isinstance(found, Err):
        return found
    old, new = found.value
    assert isinstance(old, str)
    assert isinstance(new, str)
    return Ok(RunPair(old, new))


def find_sides(
    db: sqlite3.Connection, before: str | None, after: str | None, revision: Revision
) -> Result[tuple[_Side, _Side]]:
    """Return both sides as `find_pair` does, each a run or a group of shards.

    A group is found by its name, and by a word that means a shard of it, if the history has more
    of its shards. Beside a shard that is named outright, words mean the same part of other groups.
    """
    return _find_both(_Search(db, revision, joins=True), before, after)


def run_before(db: sqlite3.Connection, run: str) -> str | None:
    """Return the run that `previous` means beside a run; None if it is the first of its suites.

    A shard follows the same part of another group.
    """
    own = next(runs(db, RunFilter(ids=[run])))
    earlier = RunFilter(completed=True, tested_like=run, until=own.started_at)
    for other in runs(db, earlier):
        same_part = other.shard == own.shard and (
            own.group_id is None or own.group_id != other.group_id
        )
        if same_part and _is_before(other, own):
            return other.id
    return None


def _find_both(
    search: _Search, before: str | None, after: str | None
) -> Result[tuple[_Side, _Side]]:
    first, second = before or "previous", after or "latest"
    if _is_word(second) and not _is_word(first):
        old = _find(search, first, None)
        new = old if isinstance(old, Err) else _find(search, second, old.value)
    else:
        new = _find(search, second, None)
        old = new if isinstance(new, Err) else _find(search, first, new.value)
    if isinstance(old, Err):
        return old
    return new if isinstance(new, Err) else Ok((old.value, new.value))


def _is_word(name: str) -> bool:
    return (
        name in ("previous", "baseline")
        or _LATEST.fullmatch(name) is not None
        or name.startswith(_GIT)
    )


def _find(search: _Search, name: str, other: _Side | None) -> Result[_Side]:
    """Return what a name means beside the other side, if that one is known."""
    if latest := _LATEST.fullmatch(name):
        return _latest(search, name, int(latest[1] or 0), other)
    if name == "previous":
        return _latest(search, name, 1, None) if other is None else _earlier(search, other)
    if name == "baseline":
        return _baseline(search, other)
    if name.startswith(_GIT):
        return _at_revision(search, name.removeprefix(_GIT), other)
    if search.joins:
        return find_run_or_group(search.db, name)
    found = find_run(search.db, name)
    return found if isinstance(found, Err) else Ok(found.value)


def _latest(search: _Search, name: str, skip: int, other: _Side | None) -> Result[_Side]:
    """Return the newest run, or the one so many before it of the same suites."""
    of, part = _run_of(other), _part_of(search, other)
    if of is None and skip:
        newest = next(_counted(search, None, None), None)
        of = newest[0].id if newest else None
    counted = list(islice(_counted(search, of, part), skip + 1))
    if len(counted) > skip:
        return _as_side(search, counted[skip])
    return Err(_too_few(name, len(counted), _suites(search.db, of)))


def _earlier(search: _Search, other: _Side) -> Result[_Side]:
    """Return the newest before the other side; beside a shard, the same part of another group."""
    db = search.db
    if isinstance(other, str) and (not search.joins or _part_of(search, other)):
        found = run_before(db, other)
        return Ok(found) if found else Err(_nothing_before(f"run {other}", _suites(db, other)))
    own = other.runs if isinstance(other, Group) else (other,)
    newest = next(runs(db, RunFilter(ids=own, limit=1)))
    for counted in _counted(search, own[0], None):
        run, group = counted
        is_itself = isinstance(other, Group) and run.id in other.runs
        # A part says nothing of the rest, which a whole run and a group have.
        is_part = run.shard is not None and group is None
        if _is_before(run, newest) and not is_itself and not is_part:
            return _as_side(search, counted)
    what = f"group {other.name!r}" if isinstance(other, Group) else f"run {other}"
    return Err(_nothing_before(what, _suites(db, own[0])))


def _is_before(run: Run, other: Run) -> bool:
    """Whether a run comes after another one in a list, which has the newest first."""
    return run.started_at < other.started_at or (
        run.started_at == other.started_at and run.id > other.id
    )


def _counted(search: _Search, of: str | None, part: str | None) -> Iterator[_Counted]:
    """Yield what the words count, the newest first; with a part, only those of other groups.

    Where groups are joined, each that is complete is counted once, where its newest run is.
    """
    completed = runs(search.db, RunFilter(completed=True, tested_like=of))
    if part is not None or not search.joins:
        yield from ((run, None) for run in completed if part in (None, run.shard))
        return
    groups = _groups_here(search.db)
    seen = set()
    for run in completed:
        group = _group_of(run)
        if group is None or group not in groups:
            yield run, None
        elif groups[group] and group not in seen:
            seen.add(group)
            yield run, group


def _as_side(search: _Search, counted: _Counted) -> Result[_Side]:
    run, group = counted
    return Ok(run.id) if group is None else _group_named(search.db, group)


def _run_of(side: _Side | None) -> str | None:
    """Return a run that has the suites of a side: all shards of a group have them."""
    return side.runs[0] if isinstance(side, Group) else side


def _part_of(search: _Search, side: _Side | None) -> str | None:
    """Return which part a side is, if that is to be compared with the same part of others."""
    if not search.joins or not isinstance(side, str):
        return None
    return next(runs(search.db, RunFilter(ids=[side]))).shard


def _baseline(search: _Search, other: _Side | None) -> Result[_Side]:
    if other is None:
        newest = _latest(search, "latest", 0, None)
        if isinstance(newest, Err):
            return newest
        other = newest.value
    run = _run_of(other)
    chosen = [(row[0], row[1]) for row in search.db.execute(_BASELINES, (run,))]
    distinct = list(dict.fromkeys(run for _, run in chosen if run is not None))
    if len(distinct) == 1:
        return Ok(distinct[0])
    tested = f"group {other.name!r}" if isinstance(other, Group) else f"run {other}"
    return Err(_several_baselines(chosen) if distinct else _no_baseline(tested, chosen))


def _at_revision(search: _Search, name: str, other: _Side | None) -> Result[_Side]:
    db, of = search.db, _run_of(other)
    completed = runs(db, RunFilter(completed=True, tested_like=of))
    recorded = list(dict.fromkeys(run.git_commit for run in completed if run.git_commit))
    commit = search.revision(name) if name else None
    if commit is None and _COMMIT_START.fullmatch(name):
        # Without git, or without that commit in it, what was recorded still knows its commits.
        starting = [known for known in recorded if known.startswith(name)]
        commit = starting[0] if len(starting) == 1 else None
    if commit is None:
        return Err(_no_revision(name, recorded))
    counted = _counted(search, of, _part_of(search, other))
    there = [each for each in counted if each[0].git_commit == commit]
    if not there:
        return Err(_nothing_at(name, commit, recorded))
    # A run with uncommitted changes is not what the commit holds, but better than nothing.
    return _as_side(search, min(there, key=lambda each: bool(each[0].git_dirty)))


def _suites(db: sqlite3.Connection, run: str | None) -> list[str]:
    return [] if run is None else list(next(runs(db, RunFilter(ids=[run]))).suites)


def _of(suites: list[str]) -> str:
    if not suites:
        return ""
    more = f" and {len(suites) - 3} more" if len(suites) > 3 else ""
    return f" of {', '.join(map(repr, suites[:3]))}{more}"


def _no_runs() -> KindlmError:
    return _error("No run is recorded yet.", "Record one: kindlm test")


def _unknown(db: sqlite3.Connection, wanted: str) -> KindlmError:
    if shards := [
        f"{run.id} ({run.shard})" for run in runs(db, RunFilter(group=wanted, limit=_NAMED_RUNS))
    ]:
        return _error(
            f"{wanted!r} is a group of shards, and one run is asked for.",
            f"Name a run: its newest are {', '.join(shards)}."
            f" All of them as one: kindlm show {wanted}",
        )
    names = ", ".join(
        f"{run.id} ({run.label})" if run.label else run.id
        for run in runs(db, RunFilter(limit=_NAMED_RUNS))
    )
    return _error(
        f"There is no run {wanted!r}.",
        f"The newest are {names}. All runs: kindlm runs" if names else "Record one: kindlm test",
    )


def _ambiguous(wanted: str, candidates: list[str]) -> KindlmError:
    return _error(
        f"{wanted!r} is the beginning of several runs: {', '.join(candidates)}.",
        "Type more characters of the run's id.",
    )


def _too_few(name: str, number: int, suites: list[str]) -> KindlmError:
    of = _of(suites)
    if number == 0:
        message = f"No run{of} has finished yet."
    else:
        runs = "Only 1 run" if number == 1 else f"Only {number} runs"
        has = "has" if number == 1 else "have"
        message = f"There is no run {name!r}: {runs.lower()}{of} {has} finished."
    return _error(message, "Record another one: kindlm test. All runs: kindlm runs")


def _nothing_before(what: str, suites: list[str]) -> KindlmError:
    return _error(
        f"There is nothing to compare {what} with: no run{_of(suites)} finished before it.",
        "Change what you test and run it again: kindlm test. All runs: kindlm runs",
    )


def _no_baseline(tested: str, chosen: list[tuple[str, str | None]]) -> KindlmError:
    suites = _of([suite for suite, _ in chosen])
    return KindlmError(
        ErrorCode.BASELINE_NOT_FOUND,
        f"No baseline is set{suites}, which {tested} tested."
        if suites
        else f"No suite that could have a baseline was tested by {tested}.",
        "Choose one: kindlm baseline set RUN",
    )


def _several_baselines(chosen: list[tuple[str, str | None]]) -> KindlmError:
    listed = ", ".join(f"{suite!r} has run {run}" for suite, run in chosen if run is not None)
    return _error(
        f"The suites have different runs as their baselines: {listed}.",
        "Name the run to compare with: kindlm diff RUN",
    )


def _no_revision(name: str, recorded: list[str]) -> KindlmError:
    return _error(f"{name!r} is no git revision that is known here.", _runs_at(recorded))


def _nothing_at(name: str, commit: str, recorded: list[str]) -> KindlmError:
    return _error(
        f"No run was recorded at {name!r}, commit {commit[:_SHORT]}, and finished.",
        _runs_at(recorded),
    )


def _runs_at(recorded: list[str]) -> str:
    if not recorded:
        return "No run was recorded in a git repository. All runs: kindlm runs"
    listed = ", ".join(commit[:_SHORT] for commit in recorded[:_LISTED_COMMITS])
    more = ", …" if len(recorded) > _LISTED_COMMITS else ""
    return f"There are runs at {listed}{more}. All runs: kindlm runs"


def _error(message: str, hint: str) -> KindlmError:
    return KindlmError(ErrorCode.CONFIG_NOT_FOUND, message, hint)
