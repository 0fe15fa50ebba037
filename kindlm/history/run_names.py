"""The runs that a comparison is asked for by name: each side by an id, a label, or a word.

The words are `latest`, `latest~n`, `previous`, `baseline` and `git:REV`. They count runs that were
carried out and finished, of the suites of the other side: what was stopped, rescored or imported
has to be named by its id or label.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.groups import Group, find_run_or_group
from kindlm.history.runs import find_run

__all__ = ["Revision", "RunPair", "find_pair", "find_sides", "run_before"]

Revision: TypeAlias = Callable[[str], str | None]
"""Returns the full commit that a git revision names; None if there is no git, or no such name."""

_LATEST = re.compile(r"latest(?:~(\d{1,6}))?", re.ASCII)
_GIT = "git:"
_COMMIT_START = re.compile(r"[0-9a-f]{4,40}")
_LISTED_COMMITS = 5
_SHORT = 8

# Of the suites of a run, those that it could load, by project and name.
_FINISHED = """
  FROM runs r
 WHERE r.ended = 'finished' AND r.mode = 'live'
   AND (:of IS NULL OR EXISTS (
          SELECT 1 FROM suites mine
            JOIN suites theirs ON theirs.run = :of AND theirs.name = mine.name
                 AND coalesce(theirs.project, mine.project) = mine.project
           WHERE mine.run = r.id AND mine.error_code IS NULL))
"""

_NTH = f"SELECT r.id {_FINISHED} ORDER BY r.started_at DESC, r.id LIMIT 1 OFFSET :skip"

# A shard is compared with the same part of another group.
_SAME_PART = """
   AND EXISTS (SELECT 1 FROM runs own WHERE own.id = :of AND own.shard IS r.shard
                AND (own.group_id IS NULL OR own.group_id IS NOT r.group_id))
"""

_EARLIER = f"""
SELECT r.id {_FINISHED}
   AND (r.started_at < :at OR (r.started_at = :at AND r.id > :of))
 {_SAME_PART}
 ORDER BY r.started_at DESC, r.id LIMIT 1
"""

# A run with uncommitted changes is not what the commit holds, but better than nothing.
_AT_COMMIT = f"""
SELECT r.id {_FINISHED} AND r.git_commit = :commit
 ORDER BY r.git_dirty IS TRUE, r.started_at DESC, r.id LIMIT 1
"""

_COMMITS = f"""
SELECT r.git_commit {_FINISHED} AND r.git_commit IS NOT NULL
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


def find_pair(
    db: sqlite3.Connection, before: str | None, after: str | None, revision: Revision
) -> Result[RunPair]:
    """Return the runs of both sides: `previous` → `latest` where a side is not named.

    A word is about the suites of the other side, so that what is named outright is found first.
    """
    first, second = before or "previous", after or "latest"
    if _is_word(second) and not _is_word(first):
        old = find_run(db, first)
        new = old if isinstance(old, Err) else _find(db, second, old.value, revision)
    else:
        new = _find(db, second, None, revision)
        old = new if isinstance(new, Err) else _find(db, first, new.value, revision)
    if isinstance(old, Err):
        return old
    return new if isinstance(new, Err) else Ok(RunPair(old.value, new.value))


def find_sides(
    db: sqlite3.Connection, before: str | None, after: str | None, revision: Revision
) -> Result[tuple[str | Group, str | Group]]:
    """Return the runs of both sides as `find_pair` does, or the groups of shards that are named."""
    named = [name for name in (before, after) if name is not None and not _is_word(name)]
    sides: list[str | Group] = []
    for name in named:
        found = find_run_or_group(db, name)
        if isinstance(found, Err):
            return found
        sides.append(found.value)
    if len(sides) == 2:
        return Ok((sides[0], sides[1]))
    if sides and isinstance(sides[0], Group):
        return Err(_beside_a_group(sides[0]))
    pair = find_pair(db, before, after, revision)
    return pair if isinstance(pair, Err) else Ok((pair.value.before, pair.value.after))


def run_before(db: sqlite3.Connection, run: str) -> str | None:
    """Return the run that `previous` means beside a run; None if it is the first of its suites."""
    (at,) = db.execute("SELECT started_at FROM runs WHERE id = ?", (run,)).fetchone()
    found = db.execute(_EARLIER, {"of": run, "at": at}).fetchone()
    return found[0] if found else None


def _is_word(name: str) -> bool:
    return (
        name in ("previous", "baseline")
        or _LATEST.fullmatch(name) is not None
        or name.startswith(_GIT)
    )


def _find(db: sqlite3.Connection, name: str, other: str | None, revision: Revision) -> Result[str]:
    """Return the run of a name beside that of the other side, if that one is known."""
    if latest := _LATEST.fullmatch(name):
        return _latest(db, name, int(latest[1] or 0), other)
    if name == "previous":
        return _latest(db, name, 1, None) if other is None else _earlier(db, other)
    if name == "baseline":
        return _baseline(db, other)
    if name.startswith(_GIT):
        return _at_revision(db, name.removeprefix(_GIT), other, revision)
    return find_run(db, name)


def _latest(db: sqlite3.Connection, name: str, skip: int, other: str | None) -> Result[str]:
    """Return the newest run, or the one so many before it of the same suites."""
    if other is None and skip:
        newest = db.execute(_NTH, {"of": None, "skip": 0}).fetchone()
        other = newest[0] if newest else None
    found = db.execute(_NTH, {"of": other, "skip": skip}).fetchone()
    if found:
        return Ok(found[0])
    number = db.execute(f"SELECT count(*) {_FINISHED}", {"of": other}).fetchone()[0]
    return Err(_too_few(name, number, _suites(db, other)))


def _earlier(db: sqlite3.Connection, other: str) -> Result[str]:
    found = run_before(db, other)
    return Ok(found) if found else Err(_nothing_before(other, _suites(db, other)))


def _baseline(db: sqlite3.Connection, other: str | None) -> Result[str]:
    if other is None:
        newest = _latest(db, "latest", 0, None)
        if isinstance(newest, Err):
            return newest
        other = newest.value
    chosen = [(row[0], row[1]) for row in db.execute(_BASELINES, (other,))]
    runs = list(dict.fromkeys(run for _, run in chosen if run is not None))
    if len(runs) == 1:
        return Ok(runs[0])
    return Err(_several_baselines(chosen) if runs else _no_baseline(other, chosen))


def _at_revision(
    db: sqlite3.Connection, name: str, other: str | None, revision: Revision
) -> Result[str]:
    recorded = [row[0] for row in db.execute(_COMMITS, {"of": other})]
    commit = revision(name) if name else None
    if commit is None and _COMMIT_START.fullmatch(name):
        # Without git, or without that commit in it, what was recorded still knows its commits.
        starting = [known for known in recorded if known.startswith(name)]
        commit = starting[0] if len(starting) == 1 else None
    if commit is None:
        return Err(_no_revision(name, recorded))
    found = db.execute(_AT_COMMIT, {"of": other, "commit": commit}).fetchone()
    return Ok(found[0]) if found else Err(_nothing_at(name, commit, recorded))


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


def _nothing_before(run: str, suites: list[str]) -> KindlmError:
    return _error(
        f"There is nothing to compare run {run} with: no run{_of(suites)} finished before it.",
        "Change what you test and run it again: kindlm test. All runs: kindlm runs",
    )


def _no_baseline(run: str, chosen: list[tuple[str, str | None]]) -> KindlmError:
    suites = _of([suite for suite, _ in chosen])
    return KindlmError(
        ErrorCode.BASELINE_NOT_FOUND,
        f"No baseline is set{suites}, which run {run} tested."
        if suites
        else f"Run {run} tested no suite that could have a baseline.",
        "Choose one: kindlm baseline set RUN",
    )


def _several_baselines(chosen: list[tuple[str, str | None]]) -> KindlmError:
    listed = ", ".join(f"{suite!r} has run {run}" for suite, run in chosen if run is not None)
    return _error(
        f"The suites have different runs as their baselines: {listed}.",
        "Name the run to compare with: kindlm diff RUN",
    )


def _beside_a_group(group: Group) -> KindlmError:
    return _error(
        f"{group.name!r} is a group of shards: what it is compared with has to be named, too.",
        "Name two runs or groups: kindlm diff BEFORE AFTER. All runs: kindlm runs",
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
