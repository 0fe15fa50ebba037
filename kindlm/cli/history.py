"""Opens the history for commands that show recorded runs.

Errors are messages that say what to do. Tables of an older version of kindlm are updated first; no
event is written.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from kindlm.cli.console import fail, note, or_fail, refuse, wants_color, warn
from kindlm.dataclass import replace
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation, broken, not_there
from kindlm.recording.project import (
    Project,
    default_paths,
    find_project,
    folder_in_repository,
    paths_from,
    regression_threshold,
)
from kindlm.wording import count, shown_path
from kindlm_store import (
    CorruptDatabaseError,
    EmptyFileError,
    ForeignSchemaError,
    NewerDatabaseError,
    NotAnEventLogError,
    NotSqliteError,
    OpenError,
    ProjectionError,
    open_reader,
)

# Runs are imported where they are read: `kindlm history backup`, `verify` and `rebuild` read none.
if TYPE_CHECKING:
    from kindlm.history.groups import Group
    from kindlm.history.run_view import RunView
    from kindlm.reports.report_registry import ReportOptions
    from kindlm_store import SchemaProblem

RESTORE = "Restore it from a backup; kindlm history backup makes them."

_NAME_ANOTHER = "Name a history of kindlm with --db, or one that is not there yet."


_NO_TABLE = re.compile(r"no such table: (?:main\.)?(\w+)")
"""What SQLite says of a table or view."""

_DAMAGE = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

CLOCKS_DIFFER = timedelta(hours=1)
"""So far may the clock be ahead of a machine whose runs are in a history."""

_MANY_EVENTS = 2_000
"""From so many events on, folding them takes long enough to be noticed."""

_NEEDED = 128 * 1024
"""Bytes: with less, SQLite cannot make the index of its write-ahead log, which readers need."""


def project_here(database: Path | None) -> Project:
    """Return the project of the working directory, whether it has a history or not."""
    project = or_fail(find_project(Path.cwd(), database=database, environ=os.environ))
    try:
        project.database.exists()
    except OSError as error:
        refuse(
            f"The history cannot be opened: {error.strerror}.",
            "Name another file with --db, KINDLM_DB or kindlm.toml.",
        )
    return project


def existing_history(database: Path | None) -> Project:
    """Return the project of the working directory; end the command if it has no history."""
    project = project_here(database)
    if not project.database.exists():
        fail([_nothing_recorded(project.database)])
    return project


@contextmanager
def open_history(database: Path | None) -> Iterator[sqlite3.Connection]:
    """Open the history of the project to read its read models; end the command if that fails."""
    project = existing_history(database)
    with closing(open_tables(project.database)) as connection:
        _warn_of_the_future(connection)
        try:
            yield connection
        except sqlite3.DatabaseError as error:
            if (full := disk_full(project.database, error)) is not None:
                fail([full])
            raise


def _warn_of_the_future(connection: sqlite3.Connection) -> None:
    """Warn of a run that began after now: words such as `latest` mean it until then."""
    found = connection.execute(
        "SELECT id, started_at FROM runs WHERE started_at > ? ORDER BY started_at DESC LIMIT 1",
        ((datetime.now(UTC) + CLOCKS_DIFFER).isoformat(),),
    ).fetchone()
    if found is not None:
        warn(
            f"Run {found['id']} began in the future, on {found['started_at'][:10]}: a clock was"
            " wrong. It counts as the latest run.",
            "Name the runs that you mean, such as: kindlm diff BEFORE AFTER",
        )


def open_tables(path: Path) -> sqlite3.Connection:
    """Open a history to read its tables, updated to this version; end the command if they can't be.

    Raises `OpenError` if the file can't be opened as a history; `app.run` shows that.
    """
    from kindlm.history.read_models import are_outdated

    connection = open_reader(path)
    try:
        if are_outdated(connection):
            _update_tables(path, connection)
        require_read_models(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _update_tables(path: Path, reader: sqlite3.Connection) -> None:
    """Fold tables of an older version anew, unless the file cannot be written.

    A second process waits for the lock that the first one folds under, and finds them updated.
    """
    from kindlm.projections import PROJECTIONS
    from kindlm_store import EventLog

    if (reader.execute("SELECT max(seq) FROM events").fetchone()[0] or 0) > _MANY_EVENTS:
        note("Updating the tables of this history for this version of kindlm …")
    try:
        EventLog.open(path, projections=PROJECTIONS).close()
    except OpenError as error:
        # A subclass says more than that the file can't be written: it is damaged, say.
        if type(error) is not OpenError or disk_full(path, error.__cause__) is not None:
            raise


@contextmanager
def open_recorded(database: Path, run: str, *, is_group: bool = False) -> Iterator[RunView | None]:
    """Open the history to read a run that has just ended; None if nothing of it was recorded.

    If it `is_group`, `run` is the name of a group of shards.
    """
    from kindlm.history.groups import find_group, shards_of
    from kindlm.history.run_view import RunView

    with closing(open_reader(database)) as reader:
        shards = shards_of(reader, run) if is_group else []
        view = RunView(reader, or_fail(find_group(reader, run, shards)) if shards else run)
        if not view.is_recorded:
            note("Nothing of the run is in the history.")
        yield view if view.is_recorded else None


def history_problem(error: BaseException) -> KindlmError | None:
    """Return the error to show if a history could not be opened, read or written; else None."""
    if isinstance(error, OpenError):
        return _not_opened(error)
    if isinstance(error, ProjectionError):
        return broken(
            f"The tables of {error.projection!r} cannot be computed: {error}.",
            "No event is lost. Update kindlm. If it is up to date, another program changed the"
            " history: take the events into a new one with"
            " kindlm history merge THIS.db --db NEW.db",
            crash=error,
        )
    # SQLite may find damage at any moment.
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE:
        return broken(
            f"The history is damaged: {error}.",
            "See where: kindlm history verify. Merge what can be read into a new history:"
            " kindlm history merge DAMAGED.db --db NEW.db",
            crash=error,
        )
    if (missing := _NO_TABLE.fullmatch(str(error))) and isinstance(error, sqlite3.OperationalError):
        return broken(
            f"Another program removed {missing[1]!r} from the history.",
            "Compute it again from the events: kindlm history rebuild. If that fails, restore the"
            " history from a backup.",
            crash=error,
        )
    return None


def _not_opened(error: OpenError) -> KindlmError:
    where = SourceLocation(str(error.path))
    if (full := disk_full(error.path, error.__cause__)) is not None:
        return full
    if isinstance(error, EmptyFileError):
        return _nothing_recorded(error.path)
    if isinstance(error, ForeignSchemaError):
        first, *rest = error.problems
        removed = repair_hint(first, error.path)
        if first.state == "foreign":
            removed = f"Remove it: {removed}. Tables may have changed by it: kindlm history rebuild"
        more = "; kindlm history verify names the others" if rest else ""
        message = f"Nothing is written into the history: it {error.reason}."
        return broken(message, f"{removed}{more}", where=where)
    hints = {
        NewerDatabaseError: "Update kindlm; a newer version recorded this history.",
        CorruptDatabaseError: salvage_hint(error.path),
        NotAnEventLogError: _NAME_ANOTHER,
        NotSqliteError: f"{_NAME_ANOTHER} Or restore this one from a backup:"
        " kindlm history backup makes them.",
    }
    hint = hints.get(type(error), "Check the permissions of the file and of its folder.")
    return broken(f"The history cannot be opened: it {error.reason}.", hint, where=where)


def salvage_hint(path: Path) -> str:
    """Return how to come by what is left of a damaged history."""
    return (
        "Merge what can be read into a new history: kindlm history merge"
        f" {shlex.quote(shown_path(path))} --db NEW.db. Or restore it from a backup."
    )


def repair_hint(problem: SchemaProblem, path: Path) -> str:
    """Return how to be rid of something in a history that is not as kindlm makes it."""
    if problem.state == "foreign":
        name = problem.name.replace('"', '""')
        statement = shlex.quote(f'DROP {problem.kind.upper()} "{name}"')
        return f"sqlite3 {shlex.quote(shown_path(path))} {statement}"
    if problem.can_be_made:
        return "kindlm history rebuild"
    if (problem.kind, problem.state) == ("table", "missing"):
        return RESTORE
    return f"kindlm history merge {shlex.quote(shown_path(path))} --db NEW.db"


def require_read_models(connection: sqlite3.Connection) -> None:
    """End the command if the tables that reports read are not those that this code knows."""
    from kindlm.history.read_models import read_model_problem

    if (problem := read_model_problem(connection)) is not None:
        fail([problem])


def _nothing_recorded(path: Path) -> KindlmError:
    return not_there(
        "No runs are recorded yet.", "Record a run: kindlm test", where=SourceLocation(str(path))
    )


@contextmanager
def open_view(database: Path | None, wanted: str) -> Iterator[RunView]:
    """Open the run or the group of shards that a user names; end the command if there is none."""
    from kindlm.history.run_names import find_run_or_group
    from kindlm.history.run_view import RunView

    with open_history(database) as connection:
        yield RunView(connection, or_fail(find_run_or_group(connection, wanted, commit_named)))


def exit_code(view: RunView) -> int:
    """Return what a command that shows a run ends with.

    That is 0 for a run, whatever its verdict: `kindlm test` has ended with it. Of a group nothing
    else tells: 1 unless all its shards are here and it passed.
    """
    return 0 if view.group is None or view.passed else 1


def report_options(database: Path | None, *, verbose: bool) -> ReportOptions:
    """Return how reports of the project's runs look on standard output."""
    from kindlm.reports.report_registry import ReportOptions

    project = project_here(database)
    found = default_paths(Path())
    paths = paths_from(project.root, found.value) if isinstance(found, Ok) else []
    look = ReportOptions(
        color=wants_color(sys.stdout),
        width=shutil.get_terminal_size().columns,
        verbose=verbose,
        database=None if database is None else shown_path(project.database),
        root=project.root,
        default_paths=tuple(paths),
    )
    return of_project(look, project.root)


def of_project(options: ReportOptions, root: Path) -> ReportOptions:
    """Return options with what reports have to know of the project that a run is of."""
    threshold = regression_threshold(root)
    return replace(
        options,
        folder=folder_in_repository(root),
        # The command that compares reports a setting that it cannot read.
        regression_threshold=threshold.value if isinstance(threshold, Ok) else None,
    )


def no_execution(wanted: str, view: RunView) -> KindlmError:
    """Return the error that a run has no such execution."""
    what = "run" if view.group is None else "group"
    by_id = "" if view.group is None else f"Name it by its id, such as {view.runs[0]}-1. "
    return not_there(
        f"The {what} {view.id} has no execution {wanted!r}.",
        f"{by_id}List its executions: kindlm report {view.id} --format json",
    )


def disk_full(path: Path, error: BaseException | None) -> KindlmError | None:
    """Return the error to show if a history could not be used since its disk is full."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    is_full = code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) == errno.ENOSPC
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        with suppress(OSError):
            is_full = shutil.disk_usage(path.parent).free < _NEEDED
    if not is_full:
        return None
    return broken(
        "There is no space left on the disk of the history.",
        "Make room there and run it again; to read takes a little room, too. Or copy it to another"
        " disk, with the file -wal beside it, and name the copy with --db.",
        where=SourceLocation(str(path)),
    )


def forget_erased(history: Path) -> None:
    """Remove the index, which is made anew when somebody searches; say so if that fails."""
    from kindlm.history.search import index_file, remove_index

    try:
        remove_index(history)
    except OSError as error:
        warn(
            f"{index_file(history)} cannot be removed: {error.strerror or error}. It may hold"
            " words of what was erased.",
            "Delete that file: it is made anew when somebody searches.",
        )


def db_option(named: Path | None) -> str:
    """Return what a command needs besides, to read the history that the user named with --db."""
    return "" if named is None else f" --db {shlex.quote(shown_path(named))}"


def taken_besides(known: int, filled: int = 0, erased: int = 0) -> str:
    """Return what else became of the events and texts that came into a history, or went."""
    told = {
        f"{known:,} were there already": known,
        f"{count(erased, 'text')} erased, as there": erased,
        f"{count(filled, 'withheld text')} filled in": filled,
    }
    return "".join(f"; {what}" for what, number in told.items() if number)


def warn_of_withheld(texts: int, file: Path) -> None:
    """Warn of texts that events of a file refer to, and that neither it nor the history holds."""
    if texts:
        warn(
            f"{count(texts, 'text')} that {file} refers to are not in it: reports show [withheld].",
            "A copy of the history that has them fills them in: kindlm history merge COPY",
        )


def commit_named(revision: str) -> str | None:
    """Return the commit that a git revision names here; None if there is none."""
    # It knows the events of runs, which take longer to import than most commands that read.
    from kindlm.recording.project import commit_of

    return commit_of(Path.cwd(), revision)


def named_run(db: sqlite3.Connection, wanted: str) -> str:
    """Return the run that a user names; end the command if there is none."""
    from kindlm.history.run_names import find_run

    return or_fail(find_run(db, wanted, commit_named))


def finished_run(db: sqlite3.Connection, wanted: str | None, suite: str | None) -> Result[str]:
    """Return the finished run that a user names, also by a file with its JSON report.

    Without a name, or as `latest`, it is the newest one that finished, of those that hold the
    suite: a run that was stopped is neither a baseline nor one to compare with it.
    """
    from kindlm.history.run_names import find_run, latest_finished

    if wanted is None or wanted == "latest":
        return latest_finished(db, suite)
    found = find_run(db, wanted, commit_named)
    path = Path(wanted)
    if isinstance(found, Ok) or not path.is_file():
        return found
    reported = _reported_run(path)
    return (
        Err(
            KindlmError(
                ErrorCode.BASELINE_NOT_FOUND,
                f"{str(path)!r} is not a JSON report of a run.",
                "Name a run, or a file that was written by: kindlm test --reporter json=FILE",
            )
        )
        if reported is None
        else find_run(db, reported)
    )


def finished_side(
    db: sqlite3.Connection, wanted: str | None, suite: str | None
) -> Result[str | Group]:
    """Return what `finished_run` does, or a group of shards.

    That is the group that a user names, or a complete one that the newest run is a shard of.
    """
    from kindlm.history.groups import find_group, shards_of
    from kindlm.history.run_names import find_run_or_group
    from kindlm.history.runs import RunFilter, runs

    if wanted is not None and shards_of(db, wanted):
        return find_run_or_group(db, wanted, commit_named)
    found = finished_run(db, wanted, suite)
    if wanted not in (None, "latest") or isinstance(found, Err):
        return found
    (run,) = runs(db, RunFilter(ids=[found.value]))
    if run.shard is None or run.group_id is None:
        return found
    whole = find_group(db, run.group_id, shards_of(db, run.group_id))
    return whole if isinstance(whole, Ok) and whole.value.complete else found


def _reported_run(path: Path) -> str | None:
    """Return the run that a file is the JSON report of; None if it is none."""
    try:
        report = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    run = report.get("run") if isinstance(report, dict) else None
    identity = run.get("id") if isinstance(run, dict) else None
    return identity if isinstance(identity, str) else None
