"""Compliance documents of a run: written where its suites want them, and as PDF if asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kindlm.cli.output_file import open_report
from kindlm.errors import Err, ErrorCode, KindlmError
from kindlm.history.rows import SuiteView
from kindlm.history.run_view import RunView
from kindlm.recording.request import RunRequest
from kindlm.reports.compliance.pdf import pdf_of
from kindlm.reports.compliance.report import document_of

__all__ = ["write_documents", "write_pdf"]

_USUAL_FOLDER = "./compliance-reports"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 80


def write_documents(
    request: RunRequest, view: RunView, *, wanted: bool
) -> Iterator[Path | KindlmError]:
    """Write a document for each suite that has `compliance` enabled, or for all that are wanted.

    They go to the suite's `outputDir`, relative to its file. Yields each file that was written, or
    why one could not be.
    """
    suites = {suite.path: suite for suite in request.suites}
    for suite in view.suites:
        settings = suites[suite.path].compliance if suite.path in suites else None
        if not wanted and (settings is None or not settings.enabled):
            continue
        folder = _USUAL_FOLDER if settings is None else settings.output_dir
        file = (request.root / suite.path).parent / folder / f"{view.id}-{_file_name(suite)}.md"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with open_report(file) as out:
                out.write(document_of(view, suite.id).text)
        except OSError as error:
            yield _not_written(file, error, view.id)
        else:
            yield file


def write_pdf(view: RunView, file: Path) -> KindlmError | None:
    """Write the documents of all suites as one PDF; return why that could not be done."""
    documents = "\n\n".join(document_of(view, suite.id).text for suite in view.suites)
    pdf = pdf_of(documents, view.info.finished_at or view.info.started_at)
    if isinstance(pdf, Err):
        return pdf.error
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pdf.value)
    except OSError as error:
        return _not_written(file, error, view.id)
    return None


def _file_name(suite: SuiteView) -> str:
    """Return the name of a suite as a part of a file's name."""
    return _NOT_IN_NAMES.sub("-", suite.name).strip("-.")[:_LONGEST_NAME] or "suite"


def _not_written(file: Path, error: OSError, run: str) -> KindlmError:
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"The compliance report could not be written to {file}: {error.strerror}.",
        f"The run is recorded; write it again: kindlm report {run} --format compliance -o FILE",
    )
