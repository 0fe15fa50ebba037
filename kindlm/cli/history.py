"""Opening the recorded history to read it: errors become words, no event is written.

Tables of an older version of kindlm are updated first.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from kindlm.cli.console import fail, note
from kindlm.cli.disk import disk_full
from kindlm.cli.shown_path import shown_path
from kindlm.errors import Err, ErrorCode, KindlmError, Result, SourceLocation
from kindlm.recording.project import Project, find_project

if TYPE_CHECKING:
    from kindlm.history.run_view import RunView
    from kindlm_store import ForeignSchemaError, SchemaProblem


RESTORE = "Restore it from a backup; kindlm backup makes them."

_NAME_ANOTHER = "Name a history of kindlm with --db, or one that is not there yet."

_T = TypeVar("_T")

_MANY_EVENTS = 2_000
"""From so many events on, folding them takes long enough to be noticed."""

_UNREADABLE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR}


def or_fail(result: Result[_T]) -> _T:
    """Return the value of a result, or end the command with its error."""
    if isinstance(result, Err):
        fail([result.error])
    return result.value


def project_here(database: Path | None) -> Project:
    """Return the project of the working directory, whether it has a history or not."""
    return or_fail(find_project(Path.cwd(), database=database, environ=os.environ))


def existing_history(database: Path | None) -> Project:
    """Return the project of the working directory; end the command if it has no history."""
    project = project_here(database)
    if not project.database.exists():
        fail([_nothing_recorded(project.database)])
    return project


@contextmanager
def open_history(database: Path | None) -> Iterator[sqlite3.Connection]:
    """Open the history of the project to read its read models; end the command if that fails."""
    from kindlm_store import OpenError

    project = existing_history(database)
    try:
        connection = open_tables(project.database)
    except OpenError as error:
        fail_to_open(error)
    with closing(connection):
        try:
            yield connection
        except sqlite3.DatabaseError as error:
            if (full := disk_full(project.database, error)) is not None:
                fail([full])
            if not _is_damage(error):
                raise
            fail([_damaged(project.database, str(error))])
        except UnicodeDecodeError:
            # SQLite quotes what is damaged, and Python can not decode that.
            fail([_damaged(project.database, "a name or a text in it is no UTF-8")])


def open_tables(path: Path) -> sqlite3.Connection:
    """Open a history to read its tables, updated to this version; end the command if they can't be.

    Raises `OpenError` if the file can't be opened as a history.
    """
    from kindlm.history.read_models import are_outdated
    from kindlm_store import open_reader

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
    """Fold tables of an older version anew; end the command if the file can't be written.

    Whoever comes second waits for the lock that the first one folds under, and finds them updated.
    """
    from kindlm.cli.test_run_problems import writes_lost
    from kindlm.history.lost_writes import lost_writes
    from kindlm.history.read_models import read_model_problem
    from kindlm.projections import PROJECTIONS
    from kindlm_store import EventLog, OpenError

    if lost := lost_writes(path):
        # Writing begins the log anew: nobody could see any more that something is lost.
        fail([writes_lost(lost, path)])
    if (reader.execute("SELECT max(seq) FROM events").fetchone()[0] or 0) > _MANY_EVENTS:
        note("Updating the tables of this history for this version of kindlm …")
    try:
        EventLog.open(path, projections=PROJECTIONS).close()
    except (OpenError, OSError) as error:
        # A subclass says more than that the file can't be written: it is damaged, say.
        if isinstance(error, OpenError) and type(error) is not OpenError:
            raise
        if (full := disk_full(path, error.__cause__ or error)) is not None:
            fail([full])
        problem = read_model_problem(reader)
        if problem is None:
            return  # another process has updated them meanwhile
        why = error.reason if isinstance(error, OpenError) else f"cannot be written ({error})"
        fail(
            [
                replace(
                    problem,
                    message=f"{problem.message} They cannot be updated, because the history {why}.",
                    hint="Make the file and its folder writable and run the command again. Or copy"
                    " the history, with the file -wal beside it, and name the copy with --db.",
                    where=SourceLocation(str(path)),
                )
            ]
        )


@contextmanager
def open_recorded(database: Path, run: str) -> Iterator[RunView | None]:
    """Open the history to read a run that has just ended; None if nothing of it was recorded."""
    from kindlm.history.run_view import RunView
    from kindlm_store import OpenError, open_reader

    try:
        reader = open_reader(database)
    except OpenError as error:
        fail_to_open(error)
    with closing(reader):
        view = RunView(reader, run)
        if not view.is_recorded:
            note("Nothing of the run is in the history.")
        yield view if view.is_recorded else None


def fail_to_open(error: Exception) -> NoReturn:
    """End the command because the store cannot open the file."""
    from kindlm_store import (
        CorruptDatabaseError,
        EmptyFileError,
        ForeignSchemaError,
        NewerDatabaseError,
        NotAnEventLogError,
        NotSqliteError,
        OpenError,
    )
    from kindlm_store.salvage import has_tables

    assert isinstance(error, OpenError)
    if (full := disk_full(error.path, error.__cause__)) is not None:
        fail([full])
    if isinstance(error, EmptyFileError):
        fail([_nothing_recorded(error.path)])
    if isinstance(error, ForeignSchemaError):
        fail([_foreign(error)])
    hints = {
        NewerDatabaseError: "Update kindlm; a newer version recorded this history.",
        CorruptDatabaseError: RESTORE,
        NotAnEventLogError: _NAME_ANOTHER,
        NotSqliteError: _NAME_ANOTHER,
    }
    hint = hints.get(type(error), "Check the permissions of the file and of its folder.")
    if isinstance(error, (CorruptDatabaseError, NotSqliteError)) and has_tables(error.path):
        hint = salvage_hint(error.path)
    fail(
        [
            KindlmError(
                ErrorCode.UNKNOWN_ERROR,
                f"The history can not be opened: it {error.reason}.",
                hint,
                where=SourceLocation(str(error.path)),
            )
        ]
    )


def salvage_hint(path: Path) -> str:
    """Return how to come by what is left of a damaged history."""
    return (
        "Take what can be read of it into a new history:"
        f" kindlm merge {shlex.quote(shown_path(path))} --db NEW.db. Or restore it from a backup."
    )


def mending_hint(problem: SchemaProblem, path: Path) -> str:
    """Return how to be rid of something in a history that is not as kindlm makes it."""
    if problem.state == "foreign":
        name = problem.name.replace('"', '""')
        statement = shlex.quote(f'DROP {problem.kind.upper()} "{name}"')
        return f"sqlite3 {shlex.quote(shown_path(path))} {statement}"
    if problem.projection is not None:
        return "kindlm rebuild"
    return f"kindlm merge {shlex.quote(shown_path(path))} --db NEW.db"


def _foreign(error: ForeignSchemaError) -> KindlmError:
    first, *rest = error.problems
    removed = mending_hint(first, error.path)
    if first.state == "foreign":
        removed = f"Remove it: {removed}. Tables may have changed by it: kindlm rebuild"
    more = "; kindlm verify names the others" if rest else ""
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"Nothing is written into the history: it {error.reason}.",
        f"{removed}{more}",
        where=SourceLocation(str(error.path)),
    )


def require_read_models(connection: sqlite3.Connection) -> None:
    """End the command if the tables that reports read are not those that this code knows."""
    from kindlm.history.read_models import read_model_problem

    if (problem := read_model_problem(connection)) is not None:
        fail([problem])


def _nothing_recorded(path: Path) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        "Nothing is recorded yet.",
        "Record a run: kindlm test",
        where=SourceLocation(str(path)),
    )


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Tell whether the file is at fault: it cannot be read, or something is gone from it."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    missing = code == sqlite3.SQLITE_ERROR and str(error).startswith("no such ")
    return code in _UNREADABLE or missing


def _damaged(path: Path, why: str) -> KindlmError:
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"The history can not be read: {why}.",
        "Compute the tables anew: kindlm rebuild"
        if why.startswith("no such ")
        else salvage_hint(path),
        where=SourceLocation(str(path)),
    )
