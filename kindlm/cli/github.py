"""What GitHub is told of a run: annotations at the lines that failed, and the summary of the job.

Neither changes how a run ends: what GitHub does not take is told, and that is all.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from kindlm.cli.console import warn
from kindlm.cli.inert_output import on_github, uninterpreted
from kindlm.history.run_view import RunView
from kindlm.reports.registry import ReportOptions

_SUMMARY = "GITHUB_STEP_SUMMARY"
_MOST_BYTES = 1024 * 1024
"""So much GitHub takes as the summary of a step; of more it shows nothing."""


def tell_github(
    view: RunView, options: ReportOptions, environ: Mapping[str, str], console: Console
) -> None:
    """Annotate what failed, on standard error, and append the Markdown report to the summary."""
    if on_github(environ):
        _annotate(view, options)
    if named := environ.get(_SUMMARY):
        try:
            problem = _append(Path(named), view, options)
        except OSError as error:
            problem = error.strerror
        if problem:
            warn(f"The summary of the job was not written: {problem}.", console=console)


def _annotate(view: RunView, options: ReportOptions) -> None:
    from kindlm.reports.github_annotations import annotations_of, as_command

    lines = [as_command(annotation) for annotation in annotations_of(view, options.folder)]
    if not lines:
        return
    sys.stderr.flush()
    out = uninterpreted(sys.stderr)
    # A command begins a line; what was written before may have left one open.
    out.write("\n" + "".join(f"{line}\n" for line in lines))
    out.flush()


def _append(summary: Path, view: RunView, options: ReportOptions) -> str | None:
    """Append the report; return why that can not be done."""
    from kindlm.reports.markdown_report import REPORT

    report = io.StringIO()
    REPORT.write(view, report, options)
    text = report.getvalue()
    has = summary.stat().st_size if summary.exists() else 0
    if has + len(text.encode()) + 1 > _MOST_BYTES:
        return "with what other commands wrote it would be larger than the 1 MiB that GitHub takes"
    with summary.open("a", encoding="utf-8", newline="\n") as out:
        out.write(f"\n{text}" if has else text)
    return None
