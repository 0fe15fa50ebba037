"""`kindlm history import` and `kindlm history merge`: add what was recorded elsewhere.

`import` takes an export, a recovery file, or another tool's results. A recovery file is an export
of the events that a run could not write. `merge` takes histories of other machines or shards, in
any order. Taking a file or a history again changes nothing.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, NamedTuple, NoReturn

import typer

from kindlm.cli.console import fail, note, or_fail, refuse, show, warn
from kindlm.cli.history import RESTORE, db_option, forget_erased, project_here, taken_besides
from kindlm.cli.options import DATABASE, argument, option
from kindlm.dataclass import dataclass
from kindlm.errors import ErrorCode, KindlmError, SourceLocation, broken, not_there
from kindlm.events import merge_of
from kindlm.recording.export_file import FORMAT, LineError, read_export
from kindlm.recording.history_file import open_log, project_secrets
from kindlm.recording.project import Project
from kindlm.wording import count
from kindlm_store import CorruptDatabaseError, EmptyFileError, EventLog, open_reader
from kindlm_store.merging import RefusedError, Taken
from kindlm_store.salvage import is_damaged, salvage, scratch_log

_STDIN = Path("-")
"""The name that means standard input."""

_RUNS = "SELECT substr(name, 5) FROM streams WHERE name GLOB 'run/*' ORDER BY id"


def import_command(
    file: Path = argument(
        "FILE",
        "A kindlm export, a recovery file, a KindLM baseline, or a golden trace or results"
        " of EvalView; - is stdin.",
    ),
    suite: str | None = option(
        "--suite -s NAME", "Suite name for EvalView results, which have none."
    ),
    db: Path | None = DATABASE,
) -> None:
    """Import a run: a kindlm export, a recovery file, or another tool's results. Safe to repeat."""
    project = project_here(db)
    imported = _import_file(file, project, suite)
    for warning in imported.warnings:
        warn(warning)
    besides = taken_besides(imported.known, imported.filled)
    note(f"{count(imported.added, 'event')} imported{besides}.")
    if imported.withheld:
        warn(*_withheld(imported.withheld, file))
    for run in imported.runs:
        note(f"See it with: kindlm show {run}{db_option(db)}")


@dataclass(frozen=True, slots=True)
class _Imported:
    """The outcome of importing a file of events.

    Attributes:
        added: Events that are new in the history.
        known: Events that were there already.
        runs: The runs that the events belong to.
        warnings: Content of the file that could not be imported.
        withheld: Texts that are neither in the file nor in the history.
        filled: Texts that were withheld, and are there now.
    """

    added: int
    known: int
    runs: Sequence[str]
    warnings: Sequence[str] = ()
    withheld: int = 0
    filled: int = 0


def _import_file(file: Path, project: Project, suite: str | None) -> _Imported:
    """Import a file into the history of a project, all of it or nothing; create it if needed.

    It is a file of events, or results of another program; `suite` is the suite of results that name
    none. A file that cannot be imported ends the command.
    """
    try:
        with _regular(file) as path:
            with path.open("rb") as opened:
                if _is_export(opened):
                    return _import_events(opened, file, project.database)
            from kindlm.cli.foreign_import import import_results, read_results

            read = read_results(path)
        if read is None:
            _refuse_line(file, LineError(1, "does not say that this file holds events"))
        results = or_fail(read)
        with open_log(project.database, project_secrets(project.root)) as log:
            run, added, known = import_results(log, results, project.root, suite)
        return _Imported(added, known, [run], results.results.warnings)
    except OSError as error:
        refuse(
            f"The file {file} cannot be read: {error.strerror or error}.",
            "Name a kindlm export, or the recovery file that kindlm test reported.",
            code=ErrorCode.CONFIG_NOT_FOUND,
        )
    except LineError as error:
        _refuse_line(file, error)


def _refuse_line(file: Path, error: LineError) -> NoReturn:
    refuse(
        f"Line {error.line} of {file} {error}.",
        "Nothing was imported. Use the file exactly as kindlm wrote it.",
        where=SourceLocation(str(file), error.line),
    )


@contextmanager
def _regular(file: Path) -> Iterator[Path]:
    """Yield a file that can be read more than once: a pipe is copied to one first."""
    if file != _STDIN and (file.is_file() or not file.exists()):
        yield file
        return
    with TemporaryDirectory(prefix="kindlm-") as folder:
        copy = Path(folder) / "input"
        with copy.open("xb") as out:
            if file == _STDIN:
                shutil.copyfileobj(sys.stdin.buffer, out)
            else:
                with file.open("rb") as pipe:
                    shutil.copyfileobj(pipe, out)
        yield copy


def _import_events(opened: BinaryIO, file: Path, database: Path) -> _Imported:
    """Import the events of a file; a refused file leaves no new history behind."""
    if not database.exists():
        with TemporaryDirectory(prefix="kindlm-") as folder:
            _import_export(opened, file, Path(folder) / database.name)
        opened.seek(0)
    return _import_export(opened, file, database)


def _is_export(opened: BinaryIO) -> bool:
    """Return whether the first line of a file marks it as an export."""
    try:
        header = json.loads(opened.readline())
    except (ValueError, RecursionError):
        return False
    finally:
        opened.seek(0)
    return isinstance(header, dict) and header.get("format") == FORMAT


def _import_export(opened: BinaryIO, file: Path, database: Path) -> _Imported:
    with read_export(opened) as export, open_log(database) as log:
        try:
            taken = merge_of(log, export.log, file, begins=export.begins).take(together=True)
        except RefusedError as error:
            fail([_refused(file, error)])
        except OSError as error:  # of a lock
            reason = f"The events of {file} were not imported: {error.strerror or error}."
            fail([broken(reason, "Free disk space, then import again.")])
        runs = [run for (run,) in export.log.execute(_RUNS)]
    if taken.erased or taken.filled:
        forget_erased(database)
    return _Imported(taken.added, taken.known, runs, withheld=taken.withheld, filled=taken.filled)


def _refused(file: Path, error: RefusedError) -> KindlmError:
    hints = {
        "going on": "Wait until it has ended, then import again.",
        "apart": "It went on in both histories: import the file into another one (--db). Delete it"
        " if it holds what could not be written here.",
        "behind": "The file only holds later ones: name the history with the others (--db), or"
        " import those first.",
        "unsound": "The file is not as it was written: export the run again.",
    }
    said = str(error).replace("/", " ", 1)
    return broken(f"Nothing of {file} was imported: {said}.", hints[error.kind])


_LOST = "SELECT count(*) FROM events WHERE stream NOT IN (SELECT id FROM streams)"

_BACKUP = "If there is a backup of it, merge that one, too: kindlm history merge BACKUP.db"


def merge_command(
    files: list[Path] = argument("DB", "Histories of other machines or shards."),
    db: Path | None = DATABASE,
) -> None:
    """Merge other histories into this one, in any order. Safe to repeat."""
    project = project_here(db)
    refused: list[KindlmError] = []
    with ExitStack() as opened:
        # All of them are opened before anything is merged.
        sources: dict[Path, sqlite3.Connection] = {}
        for file in files:
            if not file.exists():
                hint = "Name a history, such as .kindlm/kindlm.db of another machine."
                fail([not_there(f"There is no file {file}.", hint)])
            if project.database.exists() and file.samefile(project.database):
                refuse(
                    f"{file} is the history that the others are merged into.",
                    "Name the histories of other machines; --db names the one to merge into.",
                )
            try:
                reader = open_reader(file)
            except EmptyFileError:
                reader = scratch_log()
            except CorruptDatabaseError as error:
                fail([broken(f"Nothing of {file} can be read: it {error.reason}.", RESTORE)])
            sources[file] = opened.enter_context(closing(reader))
        with open_log(project.database) as log:
            merged = [_take(log, file, reader) for file, reader in sources.items()]
    if any(one.taken.erased or one.taken.filled for one in merged):
        forget_erased(project.database)
    for one in merged:
        file, taken = one.file, one.taken
        besides = taken_besides(taken.known, taken.filled, taken.erased)
        note(f"{file}: {count(taken.added, 'event')} merged{besides}.")
        if taken.withheld:
            warn(*_withheld(taken.withheld, file))
        for refusal in taken.refused:
            problem = _explained(one, refusal)
            if refusal.kind == "going on":
                warn(problem.message, problem.hint)
            else:
                refused.append(problem)
        refused += _lost(one)
    if refused:
        show(refused)
        raise typer.Exit(1)
    note(f"See them with: kindlm runs{db_option(db)}")


class _Merged(NamedTuple):
    """A history, and what was merged from it.

    Attributes:
        file: The history.
        taken: What was merged.
        is_damaged: Whether only its readable part was merged.
        lost: Number of readable events whose run or journal is unknown.
    """

    file: Path
    taken: Taken
    is_damaged: bool = False
    lost: int = 0


def _take(log: EventLog, file: Path, reader: sqlite3.Connection) -> _Merged:
    """Merge a history; of a damaged one, its readable part."""

    def taken_of(source: sqlite3.Connection) -> Taken:
        return merge_of(log, source, file).take()

    first = Taken()
    try:
        first = taken_of(reader)
    except CorruptDatabaseError as error:
        if error.path != file:
            raise
    else:
        if all(refusal.kind != "unsound" for refusal in first.refused) or not is_damaged(reader):
            return _Merged(file, first)
    warn(f"{file} is damaged: it is read row by row.")
    with closing(salvage(reader)) as copy:
        taken = taken_of(copy)
        taken.known -= first.added
        taken.streams.update(first.streams)
        return _Merged(file, taken, is_damaged=True, lost=copy.execute(_LOST).fetchone()[0])


def _explained(merged: _Merged, refusal: RefusedError) -> KindlmError:
    """Return the error that a stream could not be merged."""
    file = merged.file
    name = refusal.stream.replace("/", " ", 1)
    hints = {
        "going on": "Merge it again when it has ended.",
        "apart": "It was copied, and resumed in both histories. Both stay as they are; to look at"
        f" the other one: kindlm show {refusal.stream.removeprefix('run/')} --db {file}",
        "unsound": "All that is not named here was merged. "
        + (
            _BACKUP
            if merged.is_damaged
            else f"Check that history: kindlm history verify --db {file}"
        ),
    }
    return broken(
        f"Nothing of {name} was merged: {refusal.reason}.",
        hints[refusal.kind],
        where=SourceLocation(str(file)),
    )


def _lost(merged: _Merged) -> list[KindlmError]:
    """Return the error that some or all of a damaged history is lost; none if nothing is."""
    taken = merged.taken
    if merged.lost:
        said = f"{count(merged.lost, 'event')} of it can be read, but not of which run they are"
    elif merged.is_damaged and not (taken.added or taken.known or taken.refused):
        said = "Nothing that was recorded in it can be read"
    else:
        return []
    message = f"{said}: the history is damaged there."
    where = SourceLocation(str(merged.file))
    return [broken(message, _BACKUP, where)]


def _withheld(texts: int, file: Path) -> tuple[str, str]:
    """Return the warning about texts that no source has, with the remedy."""
    return (
        f"{count(texts, 'text')} that {file} refers to are not in it: reports show [withheld].",
        "A copy of the history that has them fills them in: kindlm history merge COPY",
    )
