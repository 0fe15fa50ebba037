"""The runs that a comparison is asked for by name: each side by an id, a label, or a word.

The words are `latest`, `latest~n`, `previous`, `baseline` and `git:REV`. They count runs that were
carried out and finished, of the suites of the other side: what was stopped, rescored or imported
has to be named by its id or label. Where groups of shards can be compared, a group counts as the
one run that it is.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeAlias

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.counted_runs import (
    FINISHED,
    Counted,
    runs_alone,
    runs_and_groups,
)
from kindlm.history.groups import Group, find_group, find_run_or_group
from kindlm.history.queries import among
from kindlm.history.runs import find_run

__all__ = ["Revision", "RunPair", "find_pair", "find_sides", "run_before"]

Revision: TypeAlias = Callable[[str], str | None]
"""Returns the full commit that a git revision names; None if there is no git, or no such name."""

_Side: TypeAlias = str | Group

_LATEST = re.compile(r"latest(?:~(\d{1,6}))?", re.ASCII)
_GIT = "git:"
_COMMIT_START = re.compile(r"[0-9a-f]{4,40}")
_LISTED_COMMITS = 5
_SHORT = 8

# A shard is compared with the same part of another group.
_SAME_PART = """
   AND EXISTS (SELECT 1 FROM runs own WHERE own.id = :of AND own.shard IS r.shard
                AND (own.group_id IS NULL OR own.group_id IS NOT r.group_id))
"""

_EARLIER = f"""
SELECT r.id {FINISHED}
   AND (r.started_at < :at OR (r.started_at = :at AND r.id > :of))
 {_SAME_PART}
 ORDER BY r.started_at DESC, r.id LIMIT 1
"""

_NEWEST_OF = """
SELECT started_at, id FROM runs WHERE id IN $ids ORDER BY started_at DESC, id LIMIT 1
"""

_COMMITS = f"""
SELECT r.git_commit {FINISHED} AND r.git_commit IS NOT NULL
 GROUP BY r.git_commit ORDER BY max(r.started_at) DESC, r.git_commit
"""

_BASELINES = """
SELECT s.name, b.run
  FROM suites s
  LEFT JOIN active_baselines b ON b.project = s.project AND b.suite = s.name
 WHERE s.run = ? AND s.error_code IS NULL
 ORDER BY s.ordinal
"""


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
    """Return the run that `previous` means beside a run; None if it is the first of its suites."""
    (at,) = db.execute("SELECT started_at FROM runs WHERE id = ?", (run,)).fetchone()
    found = db.execute(_EARLIER, {"of": run, "at": at}).fetchone()
    return found[0] if found else None


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
        of = newest.run if newest else None
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
    runs = other.runs if isinstance(other, Group) else (other,)
    at, newest = db.execute(*among(_NEWEST_OF, runs)).fetchone()
    for counted in _counted(search, runs[0], None):
        is_earlier = counted.at < at or (counted.at == at and counted.run > newest)
        is_itself = isinstance(other, Group) and counted.run in other.runs
        # A part says nothing of the rest, which a whole run and a group have.
        is_part = counted.shard is not None and counted.group is None
        if is_earlier and not is_itself and not is_part:
            return _as_side(search, counted)
    what = f"group {other.name!r}" if isinstance(other, Group) else f"run {other}"
    return Err(_nothing_before(what, _suites(db, runs[0])))


def _counted(search: _Search, of: str | None, part: str | None) -> Iterator[Counted]:
    """Yield what the words count, the newest first; with a part, only those of other groups."""
    if part is not None:
        return (counted for counted in runs_alone(search.db, of) if counted.shard == part)
    return runs_and_groups(search.db, of) if search.joins else runs_alone(search.db, of)


def _as_side(search: _Search, counted: Counted) -> Result[_Side]:
    if counted.group is None:
        return Ok(counted.run)
    return find_group(search.db, counted.group)


def _run_of(side: _Side | None) -> str | None:
    """Return a run that has the suites of a side: all shards of a group have them."""
    return side.runs[0] if isinstance(side, Group) else side


def _part_of(search: _Search, side: _Side | None) -> str | None:
    """Return which part a side is, if that is to be compared with the same part of others."""
    if not search.joins or not isinstance(side, str):
        return None
    row = search.db.execute("SELECT shard FROM runs WHERE id = ?", (side,)).fetchone()
    return row[0] if row else None


def _baseline(search: _Search, other: _Side | None) -> Result[_Side]:
    if other is None:
        newest = _latest(search, "latest", 0, None)
        if isinstance(newest, Err):
            return newest
        other = newest.value
    run = _run_of(other)
    chosen = [(row[0], row[1]) for row in search.db.execute(_BASELINES, (run,))]
    runs = list(dict.fromkeys(run for _, run in chosen if run is not None))
    if len(runs) == 1:
        return Ok(runs[0])
    tested = f"group {other.name!r}" if isinstance(other, Group) else f"run {other}"
    return Err(_several_baselines(chosen) if runs else _no_baseline(tested, chosen))


def _at_revision(search: _Search, name: str, other: _Side | None) -> Result[_Side]:
    db, of = search.db, _run_of(other)
    recorded = [row[0] for row in db.execute(_COMMITS, {"of": of})]
    commit = search.revision(name) if name else None
    if commit is None and _COMMIT_START.fullmatch(name):
        # Without git, or without that commit in it, what was recorded still knows its commits.
        starting = [known for known in recorded if known.startswith(name)]
        commit = starting[0] if len(starting) == 1 else None
    if commit is None:
        return Err(_no_revision(name, recorded))
    counted = _counted(search, of, _part_of(search, other))
    there = [each for each in counted if each.commit == commit]
    if not there:
        return Err(_nothing_at(name, commit, recorded))
    # A run with uncommitted changes is not what the commit holds, but better than nothing.
    return _as_side(search, min(there, key=lambda each: each.is_dirty))


def _suites(db: sqlite3.Connection, run: str | None) -> list[str]:
    rows = db.execute("SELECT name FROM suites WHERE run = ? ORDER BY ordinal", (run,))
    return [row[0] for row in rows]


def _of(suites: list[str]) -> str:
    if not suites:
        return ""
    more = f" and {len(suites) - 3} more" if len(suites) > 3 else ""
    return f" of {', '.join(map(repr, suites[:3]))}{more}"


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
