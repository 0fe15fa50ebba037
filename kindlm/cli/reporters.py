"""Chooses the reports of a run and their files: `--reporter NAME[=FILE]`, `-o FILE`.

The file `-` is standard output, where a report goes that names no file. Others may be a file, a
link, a pipe or a device.
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
from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, KindlmError, Ok, Result, SourceLocation, broken, misuse
from kindlm.history.run_view import RunView
from kindlm.recording.history_file import files_of
from kindlm.recording.project import configuration_file, report_files
from kindlm.reports.report_registry import NoReportError, Report, ReportOptions, find_report

STDOUT = Path("-")
"""The name that means standard output."""

_NOT_REPLACED = tuple(map(Path, ("/dev/fd", "/dev/stdout", "/dev/stderr", "/proc")))
"""What is found there stands for something that is open already, even where that is a file."""


@dataclass(frozen=True, slots=True)
class Reporter:
    """A report and the file it goes to, None for standard output."""

    report: Report
    file: Path | None


def parse_reporters(values: Sequence[str], output: Path | None) -> list[Reporter]:
    """Return the reporters that the options ask for; the terminal report if they name none.

    `output` takes the one report that names no file of its own. Two reports on standard output
    would run into each other and are refused.
    """
    reporters: list[Reporter] = []
    for value in values or ["terminal"]:
        name, named, file = value.partition("=")
        report = or_fail(find_report(name))
        if named and not file:
            refuse(
                f"--reporter {name}= names no file.",
                f"Name it: --reporter {name}=FILE, or leave the = out for standard output.",
            )
        reporters.append(Reporter(report, Path(file) if file not in ("", str(STDOUT)) else None))
    homeless = [index for index, reporter in enumerate(reporters) if reporter.file is None]
    if len(homeless) > 1:
        names = [reporters[index].report.name for index in homeless]
        what = f"Only one report can go to standard output, not {' and '.join(names)}."
        refuse(what, f"Give the others a file: --reporter {names[-1]}=FILE")
    if output is not None and str(output) != str(STDOUT):
        if not homeless:
            what = f"--output {output} has no report to take: each --reporter names a file already."
            refuse(what, "Leave --output out, or leave the file of one --reporter out.")
        reporters[homeless[0]] = replace(reporters[homeless[0]], file=output)
    return or_fail(distinct(reporters))


def configured_reporters(root: Path) -> Result[list[Reporter]]:
    """Return the reporters that the project's configuration asks for; each has a file."""
    wanted = report_files(root)
    if isinstance(wanted, Err):
        return wanted
    reporters: list[Reporter] = []
    for name, file in wanted.value:
        found = find_report(name)
        if isinstance(found, Err):
            error = found.error
            where = SourceLocation(str(configuration_file(root)))
            return Err(replace(error, message=f"report.formats: {error.message}", where=where))
        reporters.append(Reporter(found.value, file))
    return distinct(reporters)


def distinct(reporters: list[Reporter]) -> Result[list[Reporter]]:
    """Return the reporters, or an error if two reports would be written to one file."""
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
    """Return an error if a report would take the place of the history, a suite or a folder.

    `referenced` are files that suites refer to, which have to stay, too.
    """
    kept = {os.path.realpath(file): "a file that a suite refers to" for file in referenced}
    kept |= {os.path.realpath(suite): "a suite" for suite in suites}
    for reporter in reporters:
        name, file = reporter.report.name, reporter.file
        if file is None:
            continue
        if file.is_dir():
            what = f"The {name} report cannot be written to {file}: it is a folder."
            return Err(misuse(what, "Name a file in it."))
        what = "the history" if is_history(file, database) else kept.get(os.path.realpath(file), "")
        if what:
            what = f"The {name} report would be written over {what}: {file}."
            return Err(misuse(what, "Name another file."))
    return Ok(None)


def is_history(file: Path, database: Path) -> bool:
    """Return whether a file is the history, or one of those that SQLite keeps beside it."""
    return os.path.realpath(file) in map(os.path.realpath, files_of(database))


def write_reports(
    reporters: Sequence[Reporter], view: RunView, options: ReportOptions
) -> list[KindlmError]:
    """Write all reports; return what is wrong with some of them, the others are written.

    A file that a report should have replaced stays as it was.
    """
    errors: list[KindlmError] = []
    for reporter in reporters:
        name, file = reporter.report.name, reporter.file
        try:
            if file is None:
                wrong = reporter.report.write(view, sys.stdout, options)
                sys.stdout.flush()
            else:
                with open_report(file) as out:
                    wrong = reporter.report.write(view, out, replace(options, color=False))
        except NoReportError as none:
            again = _again(view, name, Path("FILE") if none.needs_file else file, options)
            then = ": " if none.needs_file else ". Then: "
            wrong = replace(none.error, hint=f"{none.error.hint}{then}{again}")
        except OSError as error:
            if file is None:
                raise
            wrong = broken(
                f"The {name} report could not be written to {file}: {error.strerror}.",
                f"The run is recorded; write it again: {_again(view, name, file, options)}",
            )
        errors += [] if wrong is None else [wrong]
    return errors


def _again(view: RunView, report: str, file: Path | None, options: ReportOptions) -> str:
    """Return the command that writes a report once more."""
    words = ["kindlm", "report", view.id, "--format", report]
    words += [] if file is None else ["-o", str(file)]
    words += [] if options.database is None else ["--db", options.database]
    return shlex.join(words)


def replaces(path: Path) -> bool:
    """Return whether there is a file that another one would take the place of."""
    return path.is_file() and not _is_written_through(path)


@contextmanager
def open_report(path: Path) -> Iterator[TextIO]:
    """Open a file for a report as `open_output` does; others may read it as the umask says."""
    with (
        open_output(path, mode=0o666) as out,
        io.TextIOWrapper(out, encoding="utf-8", newline="\n") as text,
    ):
        yield text


@contextmanager
def open_output(path: Path, *, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Open what is to be written, and create the folders that it is in.

    A regular file, also behind a symbolic link, takes its name when it is complete: what was there
    stays if that fails. Who may read and write it, `mode` and the umask say; by default its owner
    alone. Anything else is written to directly.

    Raises:
        OSError: It cannot be written.
    """
    if _is_written_through(path):
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
    finally:
        with suppress(OSError):
            part.unlink()


def _is_written_through(path: Path) -> bool:
    if any(path.absolute().is_relative_to(folder) for folder in _NOT_REPLACED):
        return True
    return path.exists() and not path.is_file()
