"""`kindlm history import`: add an export, a recovery file, or another tool's results.

A recovery file is an export of the events that a run could not write.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from kindlm.cli.console import fail, note, or_fail, refuse, warn
from kindlm.cli.history import merged_besides, project_here, remove_copies, warn_of_withheld
from kindlm.cli.options import DATABASE, argument, option
from kindlm.errors import SourceLocation, broken
from kindlm.events import merge_of
from kindlm.recording.export_file import FORMAT, LineError, read_export
from kindlm.recording.history_file import open_log, project_secrets
from kindlm.recording.project import Project
from kindlm.wording import count
from kindlm_store.merging import RefusedError, Taken

_STDIN = Path("-")

_AS_WRITTEN = "Nothing was imported. Use the file exactly as kindlm wrote it."

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
    """Import a kindlm export, or results of another tool.

    A recovery file is an export, too. It is safe to repeat.
    """
    taken, runs = _import_file(file, project_here(db), suite)
    note(f"{count(taken.added, 'event')} imported{merged_besides(taken.known, taken.filled)}.")
    warn_of_withheld(taken.withheld, file)
    for run in runs:
        note(f"See it with: kindlm show {run}")


def _import_file(file: Path, project: Project, suite: str | None) -> tuple[Taken, list[str]]:
    """Import a file of events or foreign results, all of it or nothing; return also its runs.

    `suite` is the suite of results without one. The command ends if the file cannot be imported.
    """
    try:
        with _regular(file) as path:
            with path.open("rb") as opened:
                if _is_export(opened):
                    return _import_export(opened, file, project.database)
            from kindlm.cli.foreign_import import import_results, read_results

            read = read_results(path)
        if read is None:
            no_events = f"Line 1 of {file} does not say that this file holds events."
            hint = f"{_AS_WRITTEN} To convert a suite of promptfoo: kindlm import-suite FILE"
            refuse(no_events, hint, where=SourceLocation(str(file), 1))
        results = or_fail(read)
        with open_log(project.database, project_secrets(project.root)) as log:
            run, added, known = import_results(log, results, project.root, suite)
        for warning in results.results.warnings:
            warn(warning)
        return Taken({f"run/{run}": added}, known), [run]
    except LineError as error:
        refuse(
            f"Line {error.line} of {file} {error}.",
            _AS_WRITTEN,
            where=SourceLocation(str(file), error.line),
        )


@contextmanager
def _regular(file: Path) -> Iterator[Path]:
    """Yield a file that can be read more than once, such as a copy of a pipe."""
    if file != _STDIN and (file.is_file() or not file.exists()):
        yield file
        return
    with TemporaryDirectory(prefix="kindlm-") as folder:
        copy = Path(folder) / "input"
        source = nullcontext(sys.stdin.buffer) if file == _STDIN else file.open("rb")
        with source as read, copy.open("xb") as out:
            shutil.copyfileobj(read, out)
        yield copy


def _is_export(opened: BinaryIO) -> bool:
    try:
        header = json.loads(opened.readline())
    except (ValueError, RecursionError):
        return False
    finally:
        opened.seek(0)
    return isinstance(header, dict) and header.get("format") == FORMAT


def _import_export(opened: BinaryIO, file: Path, database: Path) -> tuple[Taken, list[str]]:
    with read_export(opened) as export, open_log(database) as log:
        try:
            taken = merge_of(log, export.log, file, begins=export.begins).take(together=True)
        except RefusedError as error:
            hints = {
                "going on": "Wait until it has ended, then import again.",
                "apart": "It continued in both histories: import the file into another one (--db)."
                " Delete it if it holds what could not be written here.",
                "behind": "The file only holds later ones: name the history with the others (--db),"
                " or import those first.",
                "unsound": "The file was changed after it was written: export the run again.",
            }
            reason = str(error).replace("/", " ", 1)
            fail([broken(f"Nothing of {file} was imported: {reason}.", hints[error.kind])])
        runs = [run for (run,) in export.log.execute(_RUNS)]
    if taken.erased or taken.filled:
        remove_copies(database)
    return taken, runs
