"""Chooses the reports of a run and their files: `--reporter NAME[=FILE]`, `-o FILE`.

Without a file, or with `-`, a report goes to standard output. A file may also be a link, a pipe or
a device.
"""

from __future__ import annotations

import io
import os
import secrets
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TextIO

from kindlm.cli.console import or_fail, refuse
from kindlm.dataclass import replace
from kindlm.errors import Err, KindlmError, Ok, Raised, Result, SourceLocation, broken, misuse
from kindlm.history.run_view import RunView
from kindlm.recording.history_file import files_of
from kindlm.recording.project import configuration_file, report_files
from kindlm.reports.report_registry import Reporter, ReportOptions, find_report

STDOUT = Path("-")
"""The name of standard output as a file."""

_NOT_REPLACED = tuple(map(Path, ("/dev/fd", "/dev/stdout", "/dev/stderr", "/proc")))
"""Where paths stand for open files, which are written to and never replaced."""


def parse_reporters(values: Sequence[str], output: Path | None) -> list[Reporter]:
    """Return the reporters in the options, by default the terminal report.

    `output` is the file of the report that names none. The command ends if two reports would go to
    standard output, or to one file.
    """
    reporters: list[Reporter] = []
    for value in values or ["terminal"]:
        name, named, file = value.partition("=")
        reporter = or_fail(find_report(name))
        if named and not file:
            refuse(
                f"--reporter {name}= names no file.",
                f"Name it: --reporter {name}=FILE, or leave the = out for standard output.",
            )
        reporters.append(replace(reporter, file=None if file in ("", str(STDOUT)) else Path(file)))
    without_file = [index for index, reporter in enumerate(reporters) if reporter.file is None]
    if len(without_file) > 1:
        names = [reporters[index].name for index in without_file]
        what = f"Only one report can go to standard output, not {' and '.join(names)}."
        refuse(what, f"Give the others a file: --reporter {names[-1]}=FILE")
    if output not in (None, STDOUT):
        if not without_file:
            what = (
                f"--output {output} has no report to write: each --reporter names a file already."
            )
            refuse(what, "Leave --output out, or leave the file of one --reporter out.")
        reporters[without_file[0]] = replace(reporters[without_file[0]], file=output)
    return or_fail(distinct(reporters))


def configured_reporters(root: Path) -> Result[list[Reporter]]:
    """Return the reporters in the project's configuration; each has a file."""
    files = report_files(root)
    if isinstance(files, Err):
        return files
    reporters: list[Reporter] = []
    for name, file in files.value:
        found = find_report(name)
        if isinstance(found, Err):
            error = found.error
            where = SourceLocation(str(configuration_file(root)))
            return Err(replace(error, message=f"report.formats: {error.message}", where=where))
        reporters.append(replace(found.value, file=file))
    return distinct(reporters)


def distinct(reporters: list[Reporter]) -> Result[list[Reporter]]:
    """Return the reporters, or an error if two of them have the same file."""
    files = [reporter.file for reporter in reporters if reporter.file is not None]
    twice = [file for file, uses in Counter(map(os.path.realpath, files)).items() if uses > 1]
    if not twice:
        return Ok(reporters)
    what = f"Two reports would be written to {twice[0]}."
    return Err(misuse(what, "Give each report a file of its own."))


def spare(
    reporters: Sequence[Reporter],
    database: Path,
    suites: Iterable[Path] = (),
    referenced: Iterable[Path] = (),
) -> Result[None]:
    """Return an error if a report would overwrite the history, a suite or a `referenced` file.

    `referenced` are files that suites refer to. A folder is an error, too.
    """
    kept = {os.path.realpath(file): "a file that a suite refers to" for file in referenced}
    kept |= {os.path.realpath(suite): "a suite" for suite in suites}
    for reporter in reporters:
        name, file = reporter.name, reporter.file
        if file is None:
            continue
        if file.is_dir():
            what = f"The {name} report cannot be written to {file}: it is a folder."
            return Err(misuse(what, "Name a file in it."))
        what = "the history" if is_history(file, database) else kept.get(os.path.realpath(file), "")
        if what:
            what = f"The {name} report would overwrite {what}: {file}."
            return Err(misuse(what, "Name another file."))
    return Ok(None)


def is_history(file: Path, database: Path) -> bool:
    """Return whether a file is the history, or a file of SQLite beside it."""
    return os.path.realpath(file) in map(os.path.realpath, files_of(database))


def write_reports(
    reporters: Sequence[Reporter], view: RunView, options: ReportOptions
) -> list[KindlmError]:
    """Write all reports that can be written; return the errors of the others.

    If a report fails, an existing file stays as it was. Standard output comes last, since its
    reader may leave early.
    """
    errors: list[KindlmError] = []
    for reporter in sorted(reporters, key=lambda each: each.file is None):
        name, file = reporter.name, reporter.file
        try:
            if file is None:
                wrong = reporter.write(view, sys.stdout, options)
                sys.stdout.flush()
            else:
                with open_report(file) as out:
                    wrong = reporter.write(view, out, replace(options, color=False))
        except Raised as none:
            then = _again(view, name, options, "-o", str(file or "FILE"))
            wrong = replace(none.error, hint=f"{none.error.hint}. Then: {then}")
        except OSError as error:
            if file is None:
                raise
            wrong = not_written(view, name, file, error, options, "-o", str(file))
        errors += [] if wrong is None else [wrong]
    return errors


def not_written(
    view: RunView, report: str, file: Path, error: Exception, options: ReportOptions, *output: str
) -> KindlmError:
    """Return the error that a report could not be written; `output` are options to repeat it."""
    reason = getattr(error, "strerror", None) or error
    return broken(
        f"The {report} report could not be written to {file}: {reason}.",
        f"The run is recorded; write it again: {_again(view, report, options, *output)}",
    )


def _again(view: RunView, report: str, options: ReportOptions, *output: str) -> str:
    words = ["kindlm", "report", view.id, "--format", report, *output]
    words += [] if options.database is None else ["--db", options.database]
    return shlex.join(words)


@contextmanager
def open_report(path: Path) -> Iterator[TextIO]:
    """Open a text file as `open_output` does, with the permissions of the umask."""
    with (
        open_output(path, mode=0o666) as out,
        io.TextIOWrapper(out, encoding="utf-8", newline="\n") as text,
    ):
        yield text


@contextmanager
def open_output(path: Path, *, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Open a file to write, and create its folders.

    A regular file, also behind a symbolic link, is replaced once the new one is complete. It gets
    `mode`, restricted by the umask. Pipes and devices are written to directly.

    Raises:
        OSError: It cannot be written.
    """
    is_open = any(path.absolute().is_relative_to(folder) for folder in _NOT_REPLACED)
    if is_open or (path.exists() and not path.is_file()):
        with path.open("wb") as out:
            yield out
        return
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        with os.fdopen(descriptor, "wb") as out:
            yield out
        part.replace(target)
    except OSError as error:
        error.filename = str(path)  # not that of the part
        raise
    finally:
        with suppress(OSError):
            part.unlink()
