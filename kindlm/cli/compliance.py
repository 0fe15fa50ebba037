"""Writes the compliance documents that suites or options request, as Markdown and as PDF."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

from kindlm.cli.console import fail, note, or_fail, refuse, show
from kindlm.cli.options import TestOptions
from kindlm.cli.reporters import STDOUT, distinct, not_written, open_output, open_report, spare
from kindlm.errors import Err, ErrorCode, KindlmError, SourceLocation
from kindlm.history.run_view import RunView
from kindlm.recording.request import RunRequest
from kindlm.reports.compliance_report import (
    Document,
    content_of,
    hashed,
    pdf_of,
    require_pdf,
    write_report,
)
from kindlm.reports.report_registry import Reporter, ReportOptions
from kindlm.suite import Suite
from kindlm.wording import shown, shown_path

_USUAL_FOLDER = "./compliance-reports"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 80


def check_pdf(
    file: Path,
    reporters: Sequence[Reporter],
    database: Path,
    suites: Iterable[Path] = (),
    referenced: Iterable[Path] = (),
) -> None:
    """End the command if a PDF cannot be made, or would overwrite a report or an input file."""
    if file == STDOUT:
        refuse("A PDF cannot go to standard output.", "Name a file: --pdf FILE")
    pdf = Reporter("compliance", write_report, file)
    or_fail(require_pdf())
    or_fail(distinct([*reporters, pdf]))
    or_fail(spare([pdf], database, suites, referenced))


def write_wanted(
    request: RunRequest, view: RunView, reporting: ReportOptions, options: TestOptions
) -> list[KindlmError]:
    """Write the documents that suites or `--compliance` request; show and return the errors.

    Each goes to the `outputDir` of its suite, relative to the file of the suite. If a template
    fails, the document contains the error. With `--pdf`, all documents also go to one PDF.
    """
    enabled = {suite.path for suite in request.suites if suite.has_document}
    wanted = [suite for suite in view.suites if options.compliance or suite.path in enabled]
    errors: list[KindlmError] = []
    folders = {suite.path: suite.document_folder for suite in request.suites}
    written: set[str] = set()
    contents = [content_of(view, suite, reporting) for suite in wanted]
    for suite, content in zip(wanted, contents, strict=True):
        folder = folders.get(suite.path) or _USUAL_FOLDER
        if (outside := _leads_out(request.root, suite.path, folder)) is not None:
            errors.append(outside)
            continue
        # The name of a group may be any text, too.
        name = f"{_in_file_name(view.id) or 'group'}-{_in_file_name(suite.name) or 'suite'}"
        stem = request.root / Path(suite.path).parent / folder / name
        document = hashed([content])
        try:
            file = _unused(stem, written)
            with open_report(file) as out:
                out.write(document.text)
        except (OSError, ValueError) as error:  # a ValueError: an invalid name of a file
            file = stem.with_name(f"{stem.name}.md")
            errors.append(not_written(view, "compliance", file, error, reporting, "-o", "FILE"))
            continue
        if document.problem is not None:
            errors.append(document.problem)
        elif options.warnings:
            note(f"Compliance report: {shown_path(file)}")
    if options.pdf is not None:
        problem = write_pdf(view, options.pdf, hashed(contents), reporting)
        # The Markdown of a document has the same problem.
        errors += [] if problem is None or problem in errors else [problem]
    show(errors)
    return errors


def _in_file_name(name: str) -> str:
    return _NOT_IN_NAMES.sub("-", name).strip("-.")[:_LONGEST_NAME]


def check_folders(suites: Iterable[Suite], root: Path) -> None:
    """End the command if the `outputDir` of a suite is outside the project."""
    for suite in suites:
        if (outside := folder_outside(suite, root)) is not None:
            fail([outside])


def folder_outside(suite: Suite, root: Path) -> KindlmError | None:
    """Return the error of a suite whose `outputDir` is outside the project."""
    folder = suite.document_folder
    return None if folder is None else _leads_out(root, suite.path, folder)


def _leads_out(root: Path, suite: str, folder: str) -> KindlmError | None:
    target = (root / Path(suite).parent / folder).resolve()
    if target.is_relative_to(root.resolve()):
        return None
    return KindlmError(
        ErrorCode.CONFIG_FILE_REF_ERROR,
        f"compliance.outputDir of {suite} is outside the project: {shown(folder)}.",
        f"Name a folder below {root}.",
        where=SourceLocation(str(root / suite)),
    )


def write_pdf(
    view: RunView, file: Path, document: Document, reporting: ReportOptions
) -> KindlmError | None:
    """Write a document of a run as PDF; return why that could not be done, or its problem."""
    pdf = pdf_of(document.text, view.info.finished_at or view.info.started_at)
    if isinstance(pdf, Err):
        return pdf.error
    try:
        with open_output(file, mode=0o666) as out:
            out.write(pdf.value)
    except OSError as error:
        return not_written(view, "compliance", file, error, reporting, "--pdf", "FILE")
    return document.problem


def _unused(stem: Path, written: set[str]) -> Path:
    """Return a file for a document, with a number if another suite has the same file name."""
    names = (stem.name if number == 1 else f"{stem.name}-{number}" for number in count(1))
    files = (stem.with_name(f"{name}.md") for name in names)
    # Some file systems ignore case.
    file = next(file for file in files if os.path.realpath(file).casefold() not in written)
    written.add(os.path.realpath(file).casefold())
    return file
