"""Resolves the names of runs that a user types: an id or its beginning, a label, a group, a word.

The words are `latest`, `latest~n`, `previous`, `baseline` and `git:REV`. They count finished live
runs: a stopped, rescored or imported run needs its id or label. In a comparison, they count runs
with suites of the other side. For commands that show or follow one run, `latest` is the newest run
of any kind.

If the history has several shards of a group, words count them as one run, which is finished if all
shards are. A single shard counts as a run.
"""

from __future__ import annotations

import json
import re
import sqlite3
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from kindlm.dataclass import dataclass
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, misuse, not_there
from kindlm.history.groups import Group, GroupName, find_group, group_of, shards_of
from kindlm.history.runs import Run, RunFilter, runs
from kindlm.wording import count, first_of

Revision: TypeAlias = Callable[[str], str | None]
"""Returns the full commit of a git revision; None without git, or without such a revision."""

_RUN_NAMES = frozenset({"latest", "previous", "baseline"})

_LONGEST_LABEL = 200

_CONTROLS = frozenset({"Cc", "Zl", "Zp"})
"""Categories of Unicode: control characters, and separators of lines and paragraphs."""

Side: TypeAlias = str | Group
"""One side of a comparison: the id of a run, or a group."""

_Counted: TypeAlias = tuple[Run, GroupName | None]
"""A run that words count, or the newest run of a group, with the group."""

_WORD = re.compile(
    r"previous|baseline|latest(?:~(?P<skip>\d{1,6}))?|git:(?P<revision>.*)", re.ASCII | re.DOTALL
)
_COMMIT_START = re.compile(r"[0-9a-f]{4,40}")
_LISTED_COMMITS = 5
_SHORT = 8

_NAMED_RUNS = 3
"""Runs that an error suggests."""

_STARTING = """
SELECT id FROM runs WHERE :wanted <> '' AND substr(id, 1, length(:wanted)) = :wanted LIMIT 6
"""

# Groups with more than one shard in the history, and whether all shards are there and finished.
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
SELECT s.name, b.run, coalesce(b.runs, json_array(b.run))
  FROM suites s
  LEFT JOIN active_baselines b ON b.project = s.project AND b.suite = s.name
 WHERE s.run = ? AND s.error_code IS NULL
 ORDER BY s.ordinal
"""


def no_revision(_revision: str) -> None:
    """Return None: only commits of recorded runs are known."""


def find_run(db: sqlite3.Connection, wanted: str, revision: Revision = no_revision) -> Result[str]:
    """Return the id of the run that a user names: a word, an id or its beginning, or a label."""
    if wanted == "latest" or not _WORD.fullmatch(wanted):
        return _named_run(db, wanted)
    found = _Words(db, revision).find(wanted)
    return found if isinstance(found, Err) else _one_run(wanted, found.value)


def _named_run(db: sqlite3.Connection, wanted: str) -> Result[str]:
    """Return `latest`, or a run by its id, its label, or the beginning of its id."""
    filters = [RunFilter(ids=[wanted]), RunFilter(labelled=wanted, limit=1)]
    for named in [RunFilter(limit=1)] if wanted == "latest" else filters:
        if found := next(runs(db, named), None):
            return Ok(found.id)
    starting = [row[0] for row in db.execute(_STARTING, {"wanted": wanted})]
    if len(starting) == 1:
        return Ok(starting[0])
    if starting:
        return _error(
            f"{wanted!r} matches several runs: {', '.join(starting)}.",
            "Type more characters of the run's id.",
        )
    if shards := list(runs(db, RunFilter(group=wanted, limit=_NAMED_RUNS))):
        newest_shards = ", ".join(f"{run.id} ({run.shard})" for run in shards)
        return _error(
            f"{wanted!r} is a group of shards, but one run is needed.",
            f"Name a run: its newest are {newest_shards}. The whole group: kindlm show {wanted}",
        )
    names = ", ".join(
        f"{run.id} ({run.label})" if run.label else run.id
        for run in runs(db, RunFilter(limit=_NAMED_RUNS))
    )
    if wanted == "latest":
        return _error("No run is recorded yet.", "Record one: kindlm test")
    hint = f"The newest are {names}. All runs: kindlm runs" if names else "Record one: kindlm test"
    return _error(f"There is no run {wanted!r}.", hint)


def _one_run(wanted: str | None, side: Side) -> Result[str]:
    if isinstance(side, str):
        return Ok(side)
    return _error(
        f"{wanted or 'The run to compare with'} is the group {side.name!r}, but one run is needed.",
        f"Name a run: kindlm runs. The whole group: kindlm show {side.name}",
    )


def latest_finished(db: sqlite3.Connection, suite: str | None = None) -> Result[str]:
    """Return the newest finished live run, of a suite if one is named."""
    if found := next(runs(db, RunFilter(completed=True, suite=suite, limit=1)), None):
        return Ok(found.id)
    of_suite = "" if suite is None else f" of suite {suite!r}"
    return _error(f"No run{of_suite} has finished yet.", "List the recorded runs: kindlm runs")


def find_run_or_group(
    db: sqlite3.Connection, wanted: str, revision: Revision = no_revision
) -> Result[Side]:
    """Return the run or group that a user names.

    A label that several shards of a group have means the group, and so does `latest` if the latest
    run is one of several shards, and the group is in order.
    """
    if wanted != "latest" and _WORD.fullmatch(wanted):
        return _Words(db, revision).find(wanted)
    is_run = next(runs(db, RunFilter(ids=[wanted])), None) is not None
    if not is_run and wanted != "latest" and (shards := shards_of(db, wanted)):
        return find_group(db, wanted, shards)
    found = _named_run(db, wanted)
    if isinstance(found, Err):
        return found
    name = _group_of(_read(db, found.value))
    if name is None or name not in _groups_here(db):
        return found
    if wanted == "latest":
        newest = _group_named(db, name)
        return newest if isinstance(newest, Ok) else found
    labelled = runs(db, RunFilter(labelled=wanted, group=name.name))
    several = {run.shard for run in labelled if run.project == name.project and run.shard}
    return _group_named(db, name) if len(several) > 1 else found


def find_sides(
    db: sqlite3.Connection, before: str | None, after: str | None, revision: Revision
) -> Result[tuple[Side, Side]]:
    """Return the runs or groups to compare.

    By default, `after` is `latest`, and `before` is the baseline of its suites, else `previous`. It
    is an error if the suites have several baselines, or one that is not in the history. A word
    counts runs with suites of the other side, so an explicitly named side is found first.

    If one side is an explicitly named shard, words count the same part of other groups.
    """
    words = _Words(db, revision)
    names = (before, "latest" if after is None else after)
    is_word = [name is None or _WORD.fullmatch(name) is not None for name in names]
    first, second = (0, 1) if is_word == [False, True] else (1, 0)
    one = words.find(names[first])
    if isinstance(one, Err):
        return one
    other = words.find(names[second], one.value)
    if isinstance(other, Err):
        return other
    return Ok((one.value, other.value) if first == 0 else (other.value, one.value))


def find_pair(
    db: sqlite3.Connection, before: str | None, after: str | None, revision: Revision
) -> Result[tuple[str, str]]:
    """Return the two runs to compare as `find_sides` does; a group is an error."""
    found = find_sides(db, before, after, revision)
    if isinstance(found, Err):
        return found
    old, new = (_one_run(*side) for side in zip((before, after), found.value, strict=True))
    if isinstance(old, Err):
        return old
    return new if isinstance(new, Err) else Ok((old.value, new.value))


def find_changed(
    db: sqlite3.Connection, wanted: str | None, branch: str, here: str | None, revision: Revision
) -> Result[Side]:
    """Return the run to compare with a branch: the named one, else the newest of another branch.

    If the branch itself is checked out (`here`), it is the newest run of all.
    """
    words = _Words(db, revision)
    if wanted is None and here != branch:
        for counted in words.counted():
            if counted[0].git_branch != branch:
                return words.as_side(counted)
    return words.find("latest" if wanted is None else wanted)


def newest_of_branch(db: sqlite3.Connection, branch: str, after: Side) -> Result[Side] | None:
    """Return the newest run or group of a branch that has a suite of `after`; None without one.

    Runs with uncommitted changes count only if there is no other.
    """
    words = _Words(db)
    own = _read(db, _run_of(after))
    part = words.part_of(after)
    there = [
        (run, group)
        for run, group in words.counted(own.id, part)
        if run.git_branch == branch
        and _is_comparable(run, group, part)
        and run.id != own.id
        and (own.group_id is None or run.group_id != own.group_id)
    ]
    return words.as_side(min(there, key=_is_dirty)) if there else None


def compared_by_default(db: sqlite3.Connection, run: str) -> Side | None:
    """Return the run or group that `kindlm diff` compares a run with; None without one."""
    found = _Words(db).find(None, run)
    return found.value if isinstance(found, Ok) else None


def baseline_of(db: sqlite3.Connection, run: str) -> Result[Side] | None:
    """Return the baseline of the suites of a run; None without one, or if it is the run itself.

    It is an error if suites have different baselines, or one that is not in the history.
    """
    return _Words(db).find("baseline", run) if _has_other_baseline(db, run) else None


def _has_other_baseline(db: sqlite3.Connection, run: str) -> bool:
    chosen = {row[2] for row in db.execute(_BASELINES, (run,)) if row[1] is not None}
    return any(run not in json.loads(ids) for ids in chosen)


@dataclass(frozen=True, slots=True)
class _Words:
    """Resolves words such as `latest`."""

    db: sqlite3.Connection
    revision: Revision = no_revision

    def find(self, name: str | None, other: Side | None = None) -> Result[Side]:
        """Return the run or group of a name, given the other side if it is known."""
        if name is None:
            by_baseline = other is not None and _has_other_baseline(self.db, _run_of(other))
            return self.find("baseline" if by_baseline else "previous", other)
        word = _WORD.fullmatch(name)
        if word is None:
            return find_run_or_group(self.db, name)
        if name == "previous":
            return self._latest(name, 1, None) if other is None else self._earlier(other)
        if name == "baseline":
            return self._baseline(other)
        if word["revision"] is not None:
            return self._at_revision(word["revision"], other)
        return self._latest(name, int(word["skip"] or 0), other)

    def _latest(self, name: str, skip: int, other: Side | None) -> Result[Side]:
        """Return the newest run after skipping `skip` runs of the same suites."""
        of = None if other is None else _run_of(other)
        if of is None and skip:
            newest = next(self.counted(), None)
            of = newest[0].id if newest else None
        counted = list(islice(self.counted(of, self.part_of(other)), skip + 1))
        if len(counted) > skip:
            return self.as_side(counted[skip])
        suites = "" if of is None else _listed(_read(self.db, of).suites)
        message = f"No run{suites} has finished yet."
        if counted:
            number = count(len(counted), "finished run")
            message = f"There is no run {name!r}: the history has {number}{suites}."
        return _error(message, "Record another one: kindlm test. All runs: kindlm runs")

    def _earlier(self, other: Side) -> Result[Side]:
        """Return the newest run before a side; beside a shard, the same part of another group."""
        own = other.runs if isinstance(other, Group) else (other,)
        part = self.part_of(other)
        newest = next(runs(self.db, RunFilter(ids=own, limit=1)))
        # A group is counted at its newest shard, which may be newer than `newest`.
        until = None if part is None and _groups_here(self.db) else newest.started_at
        for run, group in self.counted(own[0], part, until):
            # In lists, the newest runs come first, and of those that began together, by id.
            is_before = (newest.started_at, run.id) > (run.started_at, newest.id)
            is_own = run.id in own or (
                part is not None and newest.group_id is not None and run.group_id == newest.group_id
            )
            if is_before and not is_own and _is_comparable(run, group, part):
                return self.as_side((run, group))
        message = f"No run{_listed(newest.suites)} finished before {_named(other)}, so there is"
        hint = "Run the tests again after a change: kindlm test. All runs: kindlm runs"
        return _error(f"{message} nothing to compare it with.", hint)

    def _baseline(self, other: Side | None) -> Result[Side]:
        if other is None:
            newest = self._latest("latest", 0, None)
            if isinstance(newest, Err):
                return newest
            other = newest.value
        chosen = self.db.execute(_BASELINES, (_run_of(other),)).fetchall()
        distinct = {ids for _, run, ids in chosen if run is not None}
        if len(distinct) == 1:
            ids = json.loads(distinct.pop())
            here = {run.id for run in runs(self.db, RunFilter(ids=ids))}
            if missing := [run for run in ids if run not in here]:
                message = f"The baseline, run {missing[0]}, is not in this history."
                hint = "Import it, or choose another one: kindlm baseline set RUN. Or name what to"
                hint += " compare with: a run, or previous."
                return Err(KindlmError(ErrorCode.BASELINE_CORRUPT, message, hint))
            return Ok(ids[0] if len(ids) == 1 else group_of(self.db, ids))
        if distinct:
            listed = ", ".join(f"{suite!r} has run {run}" for suite, run, _ in chosen if run)
            return _error(
                f"The suites have different baselines: {listed}.",
                "Compare each suite with its own: kindlm baseline compare. Or name what to compare"
                " with: a run, or previous.",
            )
        message = f"No suite of {_named(other)} could be loaded, so none has a baseline."
        if chosen:
            suites = first_of((repr(suite) for suite, _, _ in chosen), 3)
            message = f"No baseline is set for {suites} ({_named(other)})."
        hint = "Choose one: kindlm baseline set RUN"
        return Err(KindlmError(ErrorCode.BASELINE_NOT_FOUND, message, hint))

    def _at_revision(self, name: str, other: Side | None) -> Result[Side]:
        of = None if other is None else _run_of(other)
        completed = runs(self.db, RunFilter(completed=True, tested_like=of))
        recorded = list(dict.fromkeys(run.git_commit for run in completed if run.git_commit))
        commit = self.revision(name) if name else None
        if commit is None and _COMMIT_START.fullmatch(name):
            # Runs name commits, also without git.
            starting = [known for known in recorded if known.startswith(name)]
            commit = starting[0] if len(starting) == 1 else None
        hint = "No run was recorded in a git repository. All runs: kindlm runs"
        if recorded:
            listed = first_of((known[:_SHORT] for known in recorded), _LISTED_COMMITS)
            hint = f"There are runs at {listed}. All runs: kindlm runs"
        if commit is None:
            return _error(f"{name!r} is not a known git revision.", hint)
        counted = self.counted(of, self.part_of(other))
        there = [each for each in counted if each[0].git_commit == commit]
        if not there:
            what = f"{name!r}, commit {commit[:_SHORT]}"
            return _error(f"No finished run was recorded at {what}.", hint)
        return self.as_side(min(there, key=_is_dirty))

    def counted(
        self, of: str | None = None, part: str | None = None, until: str | None = None
    ) -> Iterator[_Counted]:
        """Yield the finished runs that words count: with suites of `of`, and of the same part."""
        groups = {} if part else _groups_here(self.db)
        for run in runs(self.db, RunFilter(completed=True, tested_like=of, until=until)):
            group = _group_of(run)
            if group is None or group not in groups:
                if part in (None, _part(run)):
                    yield run, None
            elif groups[group]:
                groups[group] = False  # its other shards do not count again
                yield run, group

    def as_side(self, counted: _Counted) -> Result[Side]:
        """Return the run, or the group that it is a shard of."""
        run, group = counted
        return Ok(run.id) if group is None else _group_named(self.db, group)

    def part_of(self, side: Side | None) -> str | None:
        """Return the shard of a single run; None for a group or a whole run."""
        return _part(_read(self.db, side)) if isinstance(side, str) else None


def _is_comparable(run: Run, group: GroupName | None, part: str | None) -> bool:
    """Return whether a run covers all tests, or the wanted part of them."""
    return part is not None or _part(run) is None or group is not None


def _part(run: Run) -> str | None:
    """Return the shard that a run is; None for a whole run, also if it is a shard of one."""
    return None if run.shard == "1/1" else run.shard


def _is_dirty(counted: _Counted) -> bool:
    return bool(counted[0].git_dirty)


def _read(db: sqlite3.Connection, run: str) -> Run:
    return next(runs(db, RunFilter(ids=[run])))


def _run_of(side: Side) -> str:
    """Return a run with the suites of a side, which all shards of a group have."""
    return side.runs[0] if isinstance(side, Group) else side


def _group_of(run: Run) -> GroupName | None:
    if run.shard is None or run.group_id is None:
        return None
    return GroupName(run.project, run.group_id)


def _groups_here(db: sqlite3.Connection) -> dict[GroupName, bool]:
    return {GroupName(row[0], row[1]): bool(row[2]) for row in db.execute(_GROUPS)}


def _group_named(db: sqlite3.Connection, name: GroupName) -> Result[Side]:
    shards = [run for run in shards_of(db, name.name) if run.project == name.project]
    return find_group(db, name.name, shards)


def _named(side: Side) -> str:
    return f"group {side.name!r}" if isinstance(side, Group) else f"run {side}"


def _listed(suites: Sequence[str]) -> str:
    if not suites:
        return ""
    return f" of {first_of(map(repr, suites), 3)}"


def _error(message: str, hint: str) -> Err:
    return Err(not_there(message, hint))


def label_problem(label: str) -> KindlmError | None:
    """Return why a name cannot be a label; None if it can."""
    is_line = label.strip() and len(label) <= _LONGEST_LABEL
    is_line = is_line and not any(unicodedata.category(char) in _CONTROLS for char in label)
    if is_line and not (label in _RUN_NAMES or "~" in label or label.startswith("git:")):
        return None
    return misuse(
        f"{label[:_LONGEST_LABEL]!r} cannot be a label.",
        f"A label is one line of at most {_LONGEST_LABEL} characters, without control characters."
        f" Reserved are {', '.join(sorted(_RUN_NAMES))}, names with ~ and those that begin with"
        " git:.",
    )
