"""What `kindlm import` does: the events of an export or a recovery file join a history."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, TypeAlias

from kindlm.cli import export_file
from kindlm.cli.foreign_events import require_known_form
from kindlm.cli.foreign_import import import_results, read_results
from kindlm.cli.history import fail_to_open
from kindlm.cli.search_index import forget_erased
from kindlm.cli.unwritten_import import Imported, import_unwritten
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation
from kindlm.events.journal import PURGES, SEALED_HEADS
from kindlm.recording import event_files
from kindlm.recording.event_files import LineError
from kindlm.recording.log import open_log
from kindlm.recording.project import Project
from kindlm.recording.secrets import secret_values
from kindlm_store import OpenError
from kindlm_store.merge import RefusedError

_STDIN = Path("-")
"""The name that means standard input."""

_Take: TypeAlias = Callable[[BinaryIO, Path, Path], Result[Imported]]
"""Takes the events of an opened file, of that name, into a history."""

_RUNS = "SELECT substr(name, 5) FROM streams WHERE name GLOB 'run/*' ORDER BY id"

_LONGEST_HEADER = 64 * 1024 * 1024


def import_file(file: Path, project: Project, suite: str | None = None) -> Result[Imported]:
    """Bring a file into the history of a project, all of it or nothing; create it if need be.

    It is a file of events, or one in which another program recorded results; `suite` names the
    suite of results that name none. A history that cannot be opened ends the command.
    """
    try:
        with _regular(file) as path:
            with path.open("rb") as opened:
                if (take := _TAKERS.get(_format(opened))) is not None:
                    return _import_events(take, opened, file, project.database)
            return _import_results(path, file, project, suite)
    except OSError as error:
        return Err(_unreadable(file, error))
    except LineError as error:
        return Err(_malformed(file, error))
    except OpenError as error:
        fail_to_open(error)


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


def _import_events(take: _Take, opened: BinaryIO, file: Path, database: Path) -> Result[Imported]:
    """Take the events of a file; those that are refused leave no history where there was none."""
    if not database.exists():
        with TemporaryDirectory(prefix="kindlm-") as folder:
            trial = take(opened, file, Path(folder) / database.name)
        if isinstance(trial, Err):
            return trial
        opened.seek(0)
    return take(opened, file, database)


def _import_results(
    path: Path, file: Path, project: Project, suite: str | None
) -> Result[Imported]:
    read = read_results(path)
    if read is None:
        return Err(_malformed(file, LineError(1, "does not say that this file holds events")))
    if isinstance(read, Err):
        return read
    with open_log(project.database, secret_values(os.environ, ())) as log:
        run, added, known = import_results(log, read.value, project.root, suite)
    return Ok(Imported(added, known, 0, [run], read.value.results.warnings))


def _format(opened: BinaryIO) -> str | None:
    """Return what the first line says of the format of a file, None if it says nothing."""
    try:
        header = json.loads(opened.readline(_LONGEST_HEADER))
    except (ValueError, RecursionError):
        return None
    finally:
        opened.seek(0)
    form = header.get("format") if isinstance(header, dict) else None
    return form if isinstance(form, str) else None


def _import_export(opened: BinaryIO, file: Path, database: Path) -> Result[Imported]:
    with (
        export_file.read_export(opened) as export,
        open_log(database, secret_values(os.environ, ())) as log,
    ):
        try:
            taken = log.take(
                export,
                file,
                accept=require_known_form,
                claims=SEALED_HEADS,
                erasures=PURGES,
                together=True,
            )
        except RefusedError as error:
            return Err(_refused(file, error))
        runs = [run for (run,) in export.execute(_RUNS)]
    if taken.erased or taken.filled:
        forget_erased(database)
    imported = Imported(
        taken.added, taken.known, 0, runs, withheld=taken.withheld, filled=taken.filled
    )
    return Ok(imported)


_TAKERS: dict[str | None, _Take] = {
    event_files.FORMAT: import_unwritten,
    export_file.FORMAT: _import_export,
}


def _unreadable(file: Path, error: OSError) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"The file {file} can not be read: {error.strerror or error}.",
        "Name a file that kindlm export wrote, or the one that kindlm test told of.",
    )


def _malformed(file: Path, error: LineError) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"Line {error.line} of {file} {error}.",
        "Nothing was imported. Take a file of kindlm export or kindlm test as it was written.",
        where=SourceLocation(str(file), error.line),
    )


def _refused(file: Path, error: RefusedError) -> KindlmError:
    stream, kind, reason = error.refusal
    hints = {
        "going on": "Wait until it has ended, then import again.",
        "apart": "It was copied, and resumed in both histories: import it into another one (--db).",
        "unsound": "The file is not as it was written: export the run again.",
    }
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"Nothing of {file} was imported: {stream.replace('/', ' ', 1)}: {reason}.",
        hints[kind],
    )
