"""Writes annotations and the job summary for GitHub Actions; disarms all other output.

Annotations show the lines that failed. Neither they nor the summary change how a run ends: kindlm
warns of what GitHub does not take.

GitHub looks for workflow commands in what a step prints: lines that begin with `::`, and `##[`
anywhere in a line (`ActionCommand` of https://github.com/actions/runner). Output contains what an
agent said, which must not give such commands: to hide lines, annotate files, mask words, or stop
the commands of others. So kindlm makes all other output inert.
"""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from kindlm.cli.console import warn

if TYPE_CHECKING:
    from kindlm.history.run_view import RunView
    from kindlm.reports.report_registry import ReportOptions

_COMMAND = re.compile(r"(?<![^\r\n])[^\S\r\n]*:(:)|##(\[)")

_SUMMARY = "GITHUB_STEP_SUMMARY"

_MOST_BYTES = 1024 * 1024
"""So much GitHub takes as the summary of a step; of more it shows nothing."""


def on_github(environ: Mapping[str, str]) -> bool:
    """Return whether this is a step of GitHub Actions, or of a service that works like it."""
    return environ.get("GITHUB_ACTIONS") == "true"


@contextmanager
def inert_output(environ: Mapping[str, str] = os.environ) -> Iterator[None]:
    r"""Keep workflow commands out of both streams while the context lasts.

    What would begin one is written out: `:\u003a`, `##\u005b`. Inside of JSON that is the same
    text. A stream that goes to a file stays as it is: no runner reads it, and a document may end
    with its own hash.
    """
    before = sys.stdout, sys.stderr
    if on_github(environ):
        sys.stdout, sys.stderr = (_inert(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Inert:
    """A text stream; what is not writing goes to the stream below."""

    def __init__(self, below: TextIO) -> None:
        self.below = below
        # Stands for what the unfinished line holds: as much of it as may begin a command.
        self._line = ""

    def write(self, text: str) -> int:
        """Write a text without what would begin a command, also one begun by an earlier text."""
        begun = self._line
        whole = _COMMAND.sub(_written_out, begun + text)
        self.below.write(whole[len(begun) :])
        self._line = _open_end(whole)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts one after the other."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)


def _inert(stream: TextIO) -> TextIO:
    try:
        is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        is_file = False
    return stream if is_file else cast("TextIO", _Inert(stream))


def _written_out(match: re.Match[str]) -> str:
    return match[0][:-1] + (r"\u003a" if match[1] else r"\u005b")


def _open_end(text: str) -> str:
    line = text[max(text.rfind("\n"), text.rfind("\r")) + 1 :]
    if line.strip() in ("", ":"):
        return line.strip()
    hashes = len(line) - len(line.rstrip("#"))
    return "x" + "#" * min(hashes, 2)


def tell_github(view: RunView, options: ReportOptions, environ: Mapping[str, str]) -> None:
    """Annotate what failed, on standard error, and append the Markdown report to the summary."""
    if on_github(environ):
        from kindlm.reports.github_annotations import annotations_of, as_command

        lines = [as_command(annotation) for annotation in annotations_of(view, options.folder)]
        if lines:
            sys.stderr.flush()
            out = sys.stderr.below if isinstance(sys.stderr, _Inert) else sys.stderr
            # A command begins a line; what was written before may have left one open.
            out.write("\n" + "".join(f"{line}\n" for line in lines))
            out.flush()
    if named := environ.get(_SUMMARY):
        try:
            problem = _append_summary(Path(named), view, options)
        except OSError as error:
            problem = error.strerror
        if problem:
            warn(f"The summary of the job was not written: {problem}.")


def _append_summary(summary: Path, view: RunView, options: ReportOptions) -> str | None:
    """Append the report; return why that cannot be done."""
    from kindlm.reports.markdown_report import write_report

    report = io.StringIO()
    write_report(view, report, options)
    text = report.getvalue()
    has = summary.stat().st_size if summary.exists() else 0
    if has + len(text.encode()) + 1 > _MOST_BYTES:
        return "with what other commands wrote it would be larger than the 1 MiB that GitHub takes"
    with summary.open("a", encoding="utf-8", newline="\n") as out:
        out.write(f"\n{text}" if has else text)
    return None
