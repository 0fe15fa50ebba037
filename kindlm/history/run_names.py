"""Resolves the names of runs that a user types: an id or its beginning, a label, a group, a word.

The words are `latest`, `latest~n`, `previous`, `baseline` and `git:REV`. They count finished live
runs: a stopped, rescored or imported run needs its id or label. In a comparison, they count runs
with suites of the other side. For commands that show or follow one run, `latest` is the newest run
of any kind.

If the history has several shards of a group, words count them as one run, which is finished if all
shards are. A single shard counts as a run, but is never the run before a whole one.
"""

from __future__ import annotations

import re
import shlex
import sqlite3
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice
from typing import TypeAlias

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, misuse, not_there
from kindlm.history.baselines import Baseline, list_baselines
from kindlm.history.groups import Group, find_group, shards_of
from kindlm.history.runs import Run, RunFilter, runs
from kindlm.wording import count, first_of

Revision: TypeAlias = Callable[[str], str | None]
"""Returns the full commit of a git revision; None without git, or without such a revision."""

Side: TypeAlias = str | Group
"""One side of a comparison: the id of a run, or a group."""

_WORD = re.compile(
    r"previous|baseline|latest(?:~(?P<skip>\d{1,6}))?|git:(?P<revision>.*)", re.ASCII | re.DOTALL
)
_LONGEST_LABEL = 200

_NAMED = 3
"""The most suites that an error names."""

_SHORT = 8
_SHORTEST_COMMIT = 7

_WHOLE = (None, "1/1")
"""The shards of runs that are not divided."""

_ANOTHER = "Record another one: kindlm test. All runs: kindlm runs"

_STARTING = "SELECT id FROM runs WHERE substr(id, 1, length(:wanted)) = :wanted LIMIT 6"

# Groups with more than one shard in the history, and whether all shards are there and finished.
_GROUPS = """
SELECT project, group_id,
       count(DISTINCT iif(ended = 'finished', shard, NULL))
       = max(CAST(substr(shard, instr(shard, '/') + 1) AS INTEGER))
  FROM runs WHERE shard IS NOT NULL AND group_id IS NOT NULL AND mode = 'live'
 GROUP BY project, group_id HAVING count(DISTINCT shard) > 1
"""

_SUITES = "SELECT project, name FROM suites WHERE run = ? AND error_code IS NULL"


def find_run(db: sqlite3.Connection, wanted: str, revision: Revision | None = None) -> Result[str]:
    """Return the id of the run that a user names; a group is an error."""
    found = find_run_or_group(db, wanted, revision)
    return found if isinstance(found, Err) else one_run(found.value)


def one_run(side: Side) -> Result[str]:
    """Return the id of a run; a group is an error."""
    if isinstance(side, str):
        return Ok(side)
    whole = shlex.join(("kindlm", "show", side.name))
    hint = f"Name one of them: kindlm runs. The whole group: {whole}"
    return _error(f"The group {side.name!r} has several runs, but one run is needed.", hint)


def latest_finished(db: sqlite3.Connection, suite: str | None = None) -> Result[Side]:
    """Return the newest finished live run, of a suite if one is named; its group if complete."""
    newest = next(runs(db, RunFilter(completed=True, suite=suite, limit=1)), None)
    if newest is None:
        of_suite = "" if suite is None else f" of suite {suite!r}"
        return _error(f"No run{of_suite} has finished yet.", "List the recorded runs: kindlm runs")
    whole = _side_of(db, newest)
    return whole if isinstance(whole, Ok) and _is_finished(whole.value, newest) else Ok(newest.id)


def find_run_or_group(
    db: sqlite3.Connection, wanted: str, revision: Revision | None = None
) -> Result[Side]:
    """Return the run or group that a user names.

    A label that several shards of a group have means the group, and so does `latest` if the latest
    run is one of several shards, and the group is in order.
    """
    if wanted == "latest" and (newest := next(runs(db, RunFilter(limit=1)), None)):
        whole = _side_of(db, newest)
        return whole if isinstance(whole, Ok) else Ok(newest.id)
    if wanted != "latest" and _WORD.fullmatch(wanted):
        return RunNames(db, revision=revision).find(wanted)
    if next(runs(db, RunFilter(ids=[wanted])), None):
        return Ok(wanted)
    if shards := shards_of(db, wanted):
        return find_group(db, wanted, shards)
    if labelled := next(runs(db, RunFilter(labelled=wanted, limit=1)), None):
        alike = runs(db, RunFilter(labelled=wanted, group=labelled.group_id))
        several = labelled.group_id and len({run.shard for run in alike}) > 1
        return _side_of(db, labelled) if several else Ok(labelled.id)
    starting = [run for (run,) in db.execute(_STARTING, {"wanted": wanted})] if wanted else []
    if len(starting) == 1:
        return Ok(starting[0])
    if starting:
        message = f"{wanted!r} matches several runs: {', '.join(starting)}."
        return _error(message, "Type more characters of the run's id.")
    hint = "All runs: kindlm runs. Record one: kindlm test"
    if next(runs(db, RunFilter(branch=wanted, limit=1)), None):
        command = shlex.join(("kindlm", "diff", "--base", wanted))
        hint = f"To compare with this branch: {command}. {hint}"
    return _error(f"There is no run {wanted!r}.", hint)


def find_sides(
    db: sqlite3.Connection, before: str | None, after: str | None, revision: Revision
) -> Result[tuple[Side, Side]]:
    """Return the runs or groups to compare.

    By default, `after` is `latest`, and `before` is the baseline of its suites, else `previous`. It
    is an error if the suites have several baselines, or one that is not in the history. A word
    counts runs with suites of the other side, so an explicitly named side is found first.
    """
    after = "latest" if after is None else after
    is_named = before is not None and not _WORD.fullmatch(before) and _WORD.fullmatch(after)
    first = RunNames(db, revision=revision).find(before if is_named else after)
    if isinstance(first, Err):
        return first
    second = RunNames(db, first.value, revision).find(after if is_named else before)
    if isinstance(second, Err):
        return second
    sides = first.value, second.value
    return Ok(sides if is_named else sides[::-1])


class RunNames:
    """Finds runs by their names, given the other side of the comparison if it is known."""

    def __init__(
        self, db: sqlite3.Connection, other: Side | None = None, revision: Revision | None = None
    ) -> None:
        self.db = db
        self.other = other
        self.revision = revision

    @cached_property
    def own(self) -> Run | None:
        """The other side, or the newest shard of it, all of which have the same suites."""
        if self.other is None:
            return None
        ids = [self.other] if isinstance(self.other, str) else self.other.runs
        return next(runs(self.db, RunFilter(ids=ids, limit=1)))

    def find(self, name: str | None) -> Result[Side]:
        """Return the run or group of a name; without one, the baseline or the run before."""
        name = ("baseline" if self.has_baseline else "previous") if name is None else name
        word = _WORD.fullmatch(name)
        if word is None:
            return find_run_or_group(self.db, name)
        if word["revision"] is not None:
            return self._at_revision(word["revision"])
        skip = int(word["skip"] or 0)
        if (own := self.own) is None:
            newest = next(self.counted(), None)
            if newest is None:
                return _error("No run has finished yet.", _ANOTHER)
            if name != "baseline":
                return self._latest(name, 1 if name == "previous" else skip, newest)
            side = _side_of(self.db, newest)
            return side if isinstance(side, Err) else RunNames(self.db, side.value).find(name)
        if name == "previous":
            return self._previous(own)
        return self._baseline(own) if name == "baseline" else self._latest(name, skip, own)

    def find_changed(self, wanted: str | None, branch: str, here: str | None) -> Result[Side]:
        """Return the run to compare with a branch: the named one, else the newest of another.

        If the branch itself is checked out (`here`), it is the newest run of all.
        """
        if wanted is not None or here == branch:
            return self.find("latest" if wanted is None else wanted)
        for run in self.counted():
            if run.git_branch != branch:
                return _side_of(self.db, run)
        message = f"Of branches other than {branch!r}, no run has finished yet."
        command = shlex.join(("kindlm", "diff", "--base", branch))
        return _error(message, f"Name the run to compare: {command} RUN")

    def newest_of_branch(self, branch: str) -> Result[Side] | None:
        """Return the newest run or group of a branch; None without one.

        Runs with uncommitted changes count only if there is no other.
        """
        counted = self.counted(only_whole=True)
        there = [run for run in counted if run.git_branch == branch and not self.is_own(run)]
        return _side_of(self.db, min(there, key=_is_dirty)) if there else None

    def unfinished_since(self, base: str | None = None) -> Side | None:
        """Return the newest unfinished run or group that began with the other side or later.

        It has suites of the other side, and may be the group of a single shard. Words such as
        `latest` pass over it. A run of the branch `base` only counts if the other side is of it.
        """
        if (own := self.own) is None:
            return None
        for run in runs(self.db, RunFilter(tested_like=own.id)):
            if run.started_at < own.started_at:
                break
            found = _side_of(self.db, run)
            side = found.value if isinstance(found, Ok) else run.id
            is_of_base = base is not None and run.git_branch == base != own.git_branch
            if run.mode == "live" and not _is_finished(side, run) and not is_of_base:
                return side
        return None

    def _latest(self, name: str, skip: int, like: Run) -> Result[Side]:
        """Return the newest run after skipping `skip` runs with suites of a run."""
        counted = list(islice(self.counted(like), skip + 1))
        if len(counted) > skip:
            return _side_of(self.db, counted[skip])
        number = count(len(counted), "finished run")
        message = f"There is no run {name!r}: the history has {number}{_of_suites(like)}."
        return _error(message, _ANOTHER)

    def _previous(self, own: Run) -> Result[Side]:
        """Return the newest run before the other side."""
        for run in self.counted(until=own.started_at, only_whole=True):
            # In lists, the newest runs come first, and of those that began together, by id.
            if (own.started_at, run.id) > (run.started_at, own.id) and not self.is_own(run):
                return _side_of(self.db, run)
        message = f"No run{_of_suites(own)} finished before {self._named}, so there is nothing to"
        return _error(f"{message} compare it with.", _ANOTHER)

    @cached_property
    def _baselines(self) -> list[Baseline]:
        """The active baselines of the suites of the other side."""
        suites = set(map(tuple, self.db.execute(_SUITES, (self.own and self.own.id,))))
        known = list_baselines(self.db)
        return [each for each in known if each.active and (each.project, each.suite) in suites]

    @property
    def has_baseline(self) -> bool:
        """Whether a suite of the other side has a baseline, and it is another run."""
        return any(self.own and self.own.id not in each.runs for each in self._baselines)

    def _baseline(self, own: Run) -> Result[Side]:
        if not self._baselines:
            suites = first_of(map(repr, own.suites), _NAMED)
            message = f"No baseline is set for {suites} ({self._named})."
            hint = "Choose one: kindlm baseline set RUN"
            return Err(KindlmError(ErrorCode.BASELINE_NOT_FOUND, message, hint))
        or_name = "Or name what to compare with: a run, or previous."
        if len({each.runs for each in self._baselines}) > 1:
            listed = ", ".join(f"{each.suite!r} has {each.what}" for each in self._baselines)
            hint = f"Compare each suite with its own: kindlm baseline compare. {or_name}"
            return _error(f"The suites have different baselines: {listed}.", hint)
        chosen = self._baselines[0]
        if chosen.missing is not None:
            message = f"The baseline, run {chosen.missing}, is not in this history."
            hint = f"Import it, or choose another one: kindlm baseline set RUN. {or_name}"
            return Err(KindlmError(ErrorCode.BASELINE_CORRUPT, message, hint))
        return Ok(chosen.side(self.db))

    def _at_revision(self, name: str) -> Result[Side]:
        commit = self.revision(name) if self.revision and name else None
        # Runs name commits, also without git.
        start = commit or name
        there = [run for run in self.counted() if (run.git_commit or "").startswith(start)]
        if there and len(start) >= _SHORTEST_COMMIT:
            return _side_of(self.db, min(there, key=_is_dirty))
        what = f"commit {commit[:_SHORT]}" if commit else "which is not a known git revision"
        message = f"No finished run was recorded at {name!r}, {what}."
        return _error(message, "All runs, with their commits: kindlm runs")

    def counted(
        self, like: Run | None = None, until: str | None = None, *, only_whole: bool = False
    ) -> Iterator[Run]:
        """Yield the finished runs that words count, each group at its newest shard.

        They have suites of `like`, by default of the other side. Beside a shard, single shards only
        count if they are the same part. None after `until` is needed.
        """
        like = like or self.own
        part = self.own.shard if self.own and isinstance(self.other, str) else None
        is_beside_whole = part in _WHOLE
        groups = {(project, name): whole for project, name, whole in self.db.execute(_GROUPS)}
        wanted = RunFilter(
            completed=True,
            tested_like=None if like is None else like.id,
            # A group is counted at its newest shard, which may have begun later.
            until=None if groups else until,
        )
        for run in runs(self.db, wanted):
            group = run.project, run.group_id
            if run.shard is None or group not in groups:
                is_alike = run.shard == part or run.shard in _WHOLE
                if is_alike or (is_beside_whole and not only_whole):
                    yield run
            elif groups[group]:
                groups[group] = False  # its other shards do not count again
                yield run

    def is_own(self, run: Run) -> bool:
        """Whether a run is the other side, or belongs to the same group."""
        own = self.own
        return own is not None and (
            run.id == own.id or (own.group_id is not None and run.group_id == own.group_id)
        )

    @property
    def _named(self) -> str:
        side = self.other
        return f"group {side.name!r}" if isinstance(side, Group) else f"run {side}"


def _side_of(db: sqlite3.Connection, run: Run) -> Result[Side]:
    """Return a run, or the group if it is one of several shards in the history."""
    shards = shards_of(db, run.group_id, run.project)
    several = run in shards and len({each.shard for each in shards}) > 1
    return find_group(db, run.group_id or "", shards) if several else Ok(run.id)


def _is_finished(side: Side, run: Run) -> bool:
    """Return whether a run has finished, and its whole group if the side is one."""
    return run.ended == "finished" if isinstance(side, str) else side.complete


def _is_dirty(run: Run) -> bool:
    """Return whether a run tested changes of a person. A CI job may change files, too."""
    return bool(run.git_dirty) and run.ci is None


def _of_suites(run: Run) -> str:
    return f" of {first_of(map(repr, run.suites), _NAMED)}" if run.suites else ""


def _error(message: str, hint: str) -> Err:
    return Err(not_there(message, hint))


def label_problem(label: str, what: str = "label") -> KindlmError | None:
    """Return why a name cannot be a label, or another name of runs; None if it can."""
    is_line = label.strip() and len(label) <= _LONGEST_LABEL and label.isprintable()
    if is_line and not ("~" in label or _WORD.fullmatch(label)):
        return None
    return misuse(
        f"{label[:_LONGEST_LABEL]!r} cannot be a {what}.",
        f"A {what} is one line of at most {_LONGEST_LABEL} printable characters."
        " Reserved: baseline, latest, previous, names with ~, and names that begin with git:.",
    )
