"""`kindlm history import`: take in an export, a recovery file, or another tool's results.

A recovery file holds events that a run could not write. It fits where its streams ended when it was
written. Events that are recorded already are left out, so that importing twice is harmless; all
others are one transaction.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, TypeAlias

from kindlm.cli.commands.merge import withheld
from kindlm.cli.console import note, or_fail, warn
from kindlm.cli.foreign_import import import_results, read_results
from kindlm.cli.history import db_option, fail_to_open, forget_erased, project_here, taken_besides
from kindlm.cli.options import DATABASE, argument, option
from kindlm.dataclass import dataclass
from kindlm.errors import Err, KindlmError, Ok, Result, SourceLocation, broken, misuse, not_there
from kindlm.events.run import PURGES, SEALED_HEADS
from kindlm.recording import event_files, export_file
from kindlm.recording.event_files import LineError, Unwritten, read_unwritten
from kindlm.recording.export_file import require_known_form
from kindlm.recording.history_file import open_log, project_secrets
from kindlm.recording.project import Project
from kindlm.wording import count
from kindlm_store import (
    ConflictError,
    LockHeldError,
    OpenError,
    RecordedEvent,
    StreamLock,
    WriteFailedError,
)
from kindlm_store.merging import RefusedError

_STDIN = Path("-")
"""The name that means standard input."""

_RUNS = "SELECT substr(name, 5) FROM streams WHERE name GLOB 'run/*' ORDER BY id"

_ANOTHER = (
    "Import it into the history that the run was recorded in (--db), before the run is resumed."
)


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
    imported = or_fail(import_file(file, project, suite))
    if imported.missing:
        ends = f"{file} ends early: {count(imported.missing, 'event')} of it are missing."
        warn(ends, "What it has was imported.")
    for warning in imported.warnings:
        warn(warning)
    besides = taken_besides(imported.known, imported.filled)
    note(f"{count(imported.added, 'event')} imported{besides}.")
    if imported.withheld:
        warn(*withheld(imported.withheld, file))
    for run in imported.runs:
        note(f"See it with: kindlm show {run}{db_option(db)}")


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of a file of events.

    Attributes:
        added: Events that are in the history now and were not before.
        known: Events that were there already.
        missing: Events that the file should have and does not, since it ends early.
        runs: The runs that the events are of.
        warnings: What the file says that could not be carried over.
        withheld: Texts that are neither in the file nor in the history.
        filled: Texts that were withheld, and are there now.
    """

    added: int
    known: int
    missing: int
    runs: Sequence[str]
    warnings: Sequence[str] = ()
    withheld: int = 0
    filled: int = 0


_Take: TypeAlias = Callable[[BinaryIO, Path, Path], Result[Imported]]
"""Takes the events of an opened file, of that name, into a history."""


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
            read = read_results(path)
        if read is None:
            return Err(_malformed(file, LineError(1, "does not say that this file holds events")))
        if isinstance(read, Err):
            return read
        with open_log(project.database, project_secrets(project.root)) as log:
            run, added, known = import_results(log, read.value, project.root, suite)
        return Ok(Imported(added, known, 0, [run], read.value.results.warnings))
    except OSError as error:
        return Err(
            not_there(
                f"The file {file} cannot be read: {error.strerror or error}.",
                "Name a kindlm export, or the recovery file that kindlm test reported.",
            )
        )
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


def _format(opened: BinaryIO) -> str | None:
    """Return what the first line says of the format of a file, None if it says nothing."""
    try:
        header = json.loads(opened.readline())
    except (ValueError, RecursionError):
        return None
    finally:
        opened.seek(0)
    form = header.get("format") if isinstance(header, dict) else None
    return form if isinstance(form, str) else None


def _import_export(opened: BinaryIO, file: Path, database: Path) -> Result[Imported]:
    with (
        export_file.read_export(opened) as export,
        open_log(database) as log,
    ):
        try:
            taken = log.take(
                export.log,
                file,
                begins=export.begins,
                accept=require_known_form,
                claims=SEALED_HEADS,
                erasures=PURGES,
                together=True,
            )
        except RefusedError as error:
            return Err(_refused(file, error))
        runs = [run for (run,) in export.log.execute(_RUNS)]
    if taken.erased or taken.filled:
        forget_erased(database)
    return Ok(
        Imported(taken.added, taken.known, 0, runs, withheld=taken.withheld, filled=taken.filled)
    )


def _malformed(file: Path, error: LineError) -> KindlmError:
    return misuse(
        f"Line {error.line} of {file} {error}.",
        "Nothing was imported. Use the file exactly as kindlm wrote it.",
        where=SourceLocation(str(file), error.line),
    )


def _refused(file: Path, error: RefusedError) -> KindlmError:
    stream, kind, reason = error.refusal[:3]
    hints = {
        "going on": "Wait until it has ended, then import again.",
        "apart": "It was copied, and resumed in both histories: import it into another one (--db).",
        "behind": "The file only holds later ones: import those first, then this file again.",
        "unsound": "The file is not as it was written: export the run again.",
    }
    return broken(
        f"Nothing of {file} was imported: {stream.replace('/', ' ', 1)}: {reason}.",
        hints[kind],
    )


def import_unwritten(opened: BinaryIO, file: Path, database: Path) -> Result[Imported]:
    """Append the events of a recovery file to a history, all or none.

    Raises:
        LineError: The file is something else, or holds what the tables could not be folded from.
        OpenError: The history cannot be opened.
    """
    unwritten = read_unwritten(opened)
    for line, append in enumerate(unwritten.appends, 2):
        (event,) = append.events
        # As it will be read, but for what only the log can say.
        read = RecordedEvent(
            0, event.id, append.stream, 0, event.type, event.schema, event.at, event.subject,
            event.data, "",
        )  # fmt: skip
        try:
            require_known_form(read)
        except ValueError as error:
            raise LineError(line, str(error)) from None
    streams = dict.fromkeys(append.stream for append in unwritten.appends)
    with open_log(database) as log:
        try:
            # Under the locks of the runs, so that none of them goes on meanwhile.
            with ExitStack() as locks:
                for stream in streams:
                    locks.enter_context(StreamLock(log.path, stream))
                with closing(log.reader()) as reader:
                    known = set[tuple[str, str]]().union(
                        *(_recorded(reader, stream, unwritten) for stream in streams)
                    )
                new = [a for a in unwritten.appends if (a.stream, str(a.events[0].id)) not in known]
                if new:
                    log.submit(*new).result()
        except LockHeldError as error:
            return _not_appended(file, str(error), "Wait until it has ended, then import again.")
        except (ConflictError, ValueError) as error:
            return _not_appended(file, str(error), _ANOTHER)
        except (WriteFailedError, OSError) as error:  # also of a lock
            return _not_appended(file, str(error), "Free disk space, then import again.")
    runs = [name.removeprefix("run/") for name in streams if name.startswith("run/")]
    return Ok(Imported(len(new), len(known), unwritten.missing, runs))


def _recorded(
    reader: sqlite3.Connection, stream: str, unwritten: Unwritten
) -> set[tuple[str, str]]:
    """Return those events of a stream that the history has already, by stream and id.

    Raises:
        ValueError: The rest would not follow the last event of the stream.
    """
    wanted = [str(each.events[0].id) for each in unwritten.appends if each.stream == stream]
    rows = reader.execute(
        "SELECT id, hash FROM event_log WHERE stream = ? ORDER BY version", (stream,)
    ).fetchall()
    there = [row["id"] for row in rows]
    end = unwritten.ends[stream]
    if end is None:
        start = there.index(wanted[0]) if wanted[0] in there else len(there)
    else:
        start = end.version
        if start and [row["hash"] for row in rows[start - 1 : start]] != [end.hash]:
            message = f"this history does not have the first {start:,} events of {stream}"
            raise ValueError(message)
    later = there[start:]
    if any(known != new for known, new in zip(later, wanted, strict=False)):
        message = f"{stream} went on since then, with other events"
        raise ValueError(message)
    return {(stream, known) for known in later[: len(wanted)]}


def _not_appended(file: Path, reason: str, hint: str) -> Err:
    said = f"The events of {file} were not imported: {reason}."
    return Err(broken(said, hint))


_TAKERS: dict[str | None, _Take] = {
    event_files.FORMAT: import_unwritten,
    export_file.FORMAT: _import_export,
}
