"""Opens the history for commands that read it, and finds the runs that users name.

An error ends the command with a message. Tables of an older version of kindlm are updated first,
without writing an event. Commands that merge or erase share `remove_copies`.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kindlm.cli.console import fail, fail_if, is_verbose, note, or_fail, refuse, wants_color, warn
from kindlm.cli.history_errors import disk_full, nothing_recorded
from kindlm.dataclass import replace
from kindlm.errors import Err, ErrorCode, Ok, Result, broken, not_there
from kindlm.recording.project import (
    Project,
    commit_of,
    default_paths,
    find_project,
    folder_in_repository,
    git_state,
    paths_from,
    regression_threshold,
)
from kindlm.wording import count, first_of, shown_path
from kindlm_store import EventLog, OpenError, open_reader

# Functions import what reads runs: `kindlm history backup`, `verify` and `rebuild` do not need it.
if TYPE_CHECKING:
    from kindlm.history.groups import Group
    from kindlm.history.rows import ExecutionView
    from kindlm.history.run_view import RunView
    from kindlm.history.runs import Run
    from kindlm.reports.report_registry import ReportOptions

_SHORT = 8

_MANY_EVENTS = 2_000
"""With more events, updating the tables takes noticeably long."""


def project_here(database: Path | None) -> Project:
    """Return the project of the working directory, whether it has a history or not."""
    return or_fail(find_project(database))


def existing_history(database: Path | None) -> Project:
    """Return the project of the working directory; end the command if it has no history."""
    project = project_here(database)
    if not project.database.exists():
        fail([nothing_recorded(project.database)])
    return project


@contextmanager
def open_history(database: Path | None) -> Iterator[sqlite3.Connection]:
    """Open the history of the project to read its read models; end the command if that fails."""
    project = existing_history(database)
    with closing(open_tables(project.database)) as connection:
        try:
            yield connection
        except sqlite3.DatabaseError as error:
            fail_if(disk_full(project.database, error))
            raise


def open_tables(path: Path) -> sqlite3.Connection:
    """Open a history to read its tables, and update them to this version of kindlm.

    The command ends if they cannot be updated.

    Raises:
        OpenError: The file cannot be opened as a history. `report_crash` shows it.
    """
    from kindlm.history.read_models import are_outdated, read_model_problem

    connection = open_reader(path)
    try:
        if are_outdated(connection):
            _update_tables(path, connection)
        fail_if(read_model_problem(connection))
    except BaseException:
        connection.close()
        raise
    return connection


def _update_tables(path: Path, reader: sqlite3.Connection) -> None:
    """Rebuild tables of an older version, unless the file cannot be written.

    If another process does that already, wait for it.
    """
    from kindlm.projections import PROJECTIONS

    if (reader.execute("SELECT max(seq) FROM events").fetchone()[0] or 0) > _MANY_EVENTS:
        note("Updating the tables of this history for this version of kindlm …")
    try:
        EventLog.open(path, projections=PROJECTIONS).close()
    except OpenError as error:
        # A subclass means another fault, such as damage. The base class: it cannot be written.
        if type(error) is not OpenError or disk_full(path, error.__cause__) is not None:
            raise


@contextmanager
def open_recorded(database: Path, run: str, *, is_group: bool = False) -> Iterator[RunView]:
    """Open the history to read a run that has just ended; end the command if nothing was recorded.

    With `is_group`, `run` is the name of a group of shards.
    """
    from kindlm.history.groups import find_group, shards_of
    from kindlm.history.run_view import RunView

    with closing(open_reader(database)) as reader:
        shards = shards_of(reader, run) if is_group else []
        view = RunView(reader, or_fail(find_group(reader, run, shards)) if shards else run)
        if not view.is_recorded:
            fail([broken("The history has no events of the run.")])
        yield view


@contextmanager
def open_view(database: Path | None, name: str) -> Iterator[RunView]:
    """Open the run or the group of shards that a user names; end the command if there is none."""
    from kindlm.history.run_names import find_run_or_group
    from kindlm.history.run_view import RunView

    with open_history(database) as connection:
        yield RunView(connection, or_fail(find_run_or_group(connection, name, commit_named)))


def exit_for(view: RunView) -> None:
    """End a command that shows a run or a group.

    The exit code is 0 for a run, whose verdict was that of `kindlm test`. A group has no such exit
    code yet: it gets 1 unless all its shards are here and it passed.
    """
    if view.group is not None and not view.passed:
        raise typer.Exit(1)


def report_options(database: Path | None) -> ReportOptions:
    """Return the options of reports on standard output about runs of this project."""
    from kindlm.reports.report_registry import ReportOptions

    project = project_here(database)
    found = default_paths(Path())
    paths = paths_from(project.root, found.value) if isinstance(found, Ok) else []
    options = ReportOptions(
        color=wants_color(sys.stdout),
        width=shutil.get_terminal_size().columns,
        verbose=is_verbose(),
        database=None if database is None else shown_path(project.database),
        root=project.root,
        default_paths=tuple(paths),
    )
    return of_project(options, project.root)


def of_project(options: ReportOptions, root: Path) -> ReportOptions:
    """Return report options with the settings of a project."""
    threshold = regression_threshold(root)
    return replace(
        options,
        folder=folder_in_repository(root),
        # Commands that compare runs report an invalid threshold.
        regression_threshold=threshold.value if isinstance(threshold, Ok) else None,
    )


def find_execution(view: RunView, name: str) -> Result[ExecutionView]:
    """Return the execution with an id, a number, or the name of a test with only this one."""
    if (found := view.execution(name)) is not None:
        return Ok(found)
    repeats = view.repeats_named(name)
    if len(repeats) == 1 and (found := view.execution(repeats[0]["id"])) is not None:
        return Ok(found)
    if repeats:
        ids = (f"{row['id']} ({row['status'] or 'not ended'})" for row in repeats)
        message = f"The test {name!r} has {len(repeats)} executions: name one of them."
        return Err(not_there(message, f"They are {first_of(ids, _MOST_REPEATS)}."))
    names = f"its id, such as {view.runs[0]}-1, or its test"
    hint = f"Name it by {names}. The tests: kindlm show {shlex.quote(view.id)}"
    return Err(not_there(f"{view.id} has no execution {name!r}.", hint))


_MOST_REPEATS = 20
"""How many executions of a test an error lists."""


def db_option(other: Path) -> str:
    """Return the `--db` of a suggested command about another history than that of this command."""
    return f" --db {shlex.quote(shown_path(other))}"


def merged_besides(known: int, filled: int = 0, erased: int = 0) -> str:
    """Return what a transfer did besides adding events, to follow "3 events merged"."""
    parts = {
        f"{known:,} were there already": known,
        f"{count(erased, 'text')} erased, as there": erased,
        f"{count(filled, 'withheld text')} filled in": filled,
    }
    return "".join(f"; {part}" for part, number in parts.items() if number)


def warn_of_withheld(texts: int, file: Path) -> None:
    """Warn about texts that events of a file refer to, if neither it nor the history has them."""
    if texts:
        warn(
            f"{count(texts, 'text')} that {file} refers to are not in it: reports show [withheld].",
            "A copy of the history that has them fills them in: kindlm history merge COPY",
        )


def remove_copies(history: Path) -> None:
    """Remove the search index and unfinished backups; warn if the index cannot be removed."""
    from kindlm.history.search import index_file, remove_index
    from kindlm.recording.history_file import remove_unfinished_backups

    try:
        remove_index(history)
    except OSError as error:
        warn(
            f"{index_file(history)} cannot be removed: {error.strerror or error}. It may hold"
            " words of what was erased.",
            "Delete that file: it is made anew when somebody searches.",
        )
    remove_unfinished_backups(history.parent)


def commit_named(revision: str) -> str | None:
    """Return the commit that a git revision names here; None if there is none."""
    return commit_of(Path.cwd(), revision)


def named_run(db: sqlite3.Connection, name: str) -> str:
    """Return the id of the run that a user names; end the command if there is none."""
    from kindlm.history.run_names import find_run

    return or_fail(find_run(db, name, commit_named))


def finished_run(db: sqlite3.Connection, name: str | None, suite: str | None) -> str:
    """Return the finished run that a user names, as `finished_side` does; refuse a group.

    A warning says if the newest run is a single shard.
    """
    from kindlm.history.run_names import one_run
    from kindlm.history.runs import RunFilter, runs

    found = or_fail(one_run(finished_side(db, name, suite)))
    if name in (None, "latest"):
        (run,) = runs(db, RunFilter(ids=[found]))
        if run.shard not in (None, "1/1"):
            what = f"Run {run.id}, the newest finished one, is only shard {run.shard}."
            warn(what, "Choose a run of all tests: kindlm runs")
    return found


def warn_of_other_commit(run: Run, root: Path) -> None:
    """Warn if a run that gets more results tested another commit than the one here."""
    now = git_state(root)
    if run.git_commit is None or now is None:
        return
    is_changed = now.dirty and not run.git_dirty
    if now.commit != run.git_commit or is_changed:
        here = f"{now.commit[:_SHORT]}{' with uncommitted changes' if now.dirty else ''}"
        warn(
            f"Run {run.id} tested commit {run.git_commit[:_SHORT]}, and here is {here}.",
            "If the agent has changed since, check that commit out: all results of a run count as"
            " those of one agent.",
        )


def warn_of_passed_over(
    db: sqlite3.Connection, name: str | None, side: str | Group, base: str | None = None
) -> str | None:
    """Warn if a side that no name chose is not the newest run, since that is unfinished.

    Return the warning, for the report. Runs of the branch `base` do not count.
    """
    from kindlm.history.run_names import RunNames
    from kindlm.reports.untrusted import one_line

    newer = RunNames(db, side).unfinished_since(base) if name in (None, "latest") else None
    if newer is None:
        return None
    what = f"run {newer}" if isinstance(newer, str) else f"group {one_line(newer.name)}"
    message = f"The newest one, {what}, is unfinished: it is not compared."
    warn(message, "Name it to compare it.")
    return message


def finished_side(db: sqlite3.Connection, name: str | None, suite: str | None) -> str | Group:
    """Return the finished run or group that a user names, also by a file with its JSON report.

    Without a name, or with `latest`, it is the newest finished run of the suite, or its group if
    that is complete. The command ends if there is none.
    """
    from kindlm.history.run_names import find_run, find_run_or_group, latest_finished

    if name is None or name == "latest":
        return or_fail(latest_finished(db, suite))
    found, path = find_run_or_group(db, name, commit_named), Path(name)
    if isinstance(found, Err) and path.is_file():
        try:
            reported = json.loads(path.read_bytes())["run"]["id"]
        except (OSError, ValueError, RecursionError, TypeError, LookupError):
            reported = None
        if not isinstance(reported, str):
            refuse(
                f"{str(path)!r} is not a JSON report of a run.",
                "Name a run, or a file that was written by: kindlm test --reporter json=FILE",
                code=ErrorCode.BASELINE_NOT_FOUND,
            )
        return or_fail(find_run(db, reported))
    return or_fail(found)
