"""Writes annotations and the job summary for GitHub Actions; disarms all other output.

GitHub reads workflow commands in the output of a step: lines that begin with `::`, and `##[`
anywhere in a line (`ActionCommand` of https://github.com/actions/runner). Azure Pipelines reads
`##vso[` anywhere in a line. An agent's answer must not hide lines, annotate files, mask words, set
variables or stop commands, so kindlm escapes all other output on both.

Failures to write annotations or the summary do not change the exit code.
"""

from __future__ import annotations

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

_COMMAND = re.compile(r"(?<![^\r\n])[^\S\r\n]*:(:)|##(?:vso)?(\[)", re.IGNORECASE)
_BEGUN = re.compile(r"##?\Z|##v(?:so?)?\Z", re.IGNORECASE)


@contextmanager
def inert_output(environ: Mapping[str, str] = os.environ) -> Iterator[None]:
    r"""Escape workflow commands in both output streams while the context lasts.

    They become `:\u003a` and `##\u005b`, which JSON reads as the same text. A stream to a file
    stays as it is: no runner reads it, and a document may contain its own hash.
    """
    before = sys.stdout, sys.stderr
    if _reads_commands(environ):
        sys.stdout, sys.stderr = (_inert(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def inert(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return a text for the output of another program, with escaped workflow commands."""
    return _COMMAND.sub(_escaped, text) if _reads_commands(environ) else text


def _reads_commands(environ: Mapping[str, str]) -> bool:
    """Return whether the output of this process is read for commands."""
    return environ.get("GITHUB_ACTIONS") == "true" or bool(environ.get("TF_BUILD"))


class _Inert:
    """A text stream that escapes workflow commands, on top of another stream."""

    def __init__(self, below: TextIO) -> None:
        self.below = below
        # The end of the unfinished line, as far as it could begin a command.
        self._begun = ""

    def write(self, text: str) -> int:
        """Write a text with escaped commands, including those that an earlier text began."""
        whole = _COMMAND.sub(_escaped, self._begun + text)
        self.below.write(whole[len(self._begun) :])
        self._begun = _possible_command(whole)
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


def _escaped(match: re.Match[str]) -> str:
    return match[0][:-1] + (r"\u003a" if match[1] else r"\u005b")


def _possible_command(text: str) -> str:
    """Return the last line of a text as far as it could begin a command; an `x` replaces more."""
    line = text[max(text.rfind("\n"), text.rfind("\r")) + 1 :]
    if line.strip() in ("", ":"):
        return line.strip()
    begun = _BEGUN.search(line)
    return "x" + (begun[0] if begun else "")


def annotate_github(view: RunView, options: ReportOptions, environ: Mapping[str, str]) -> None:
    """Write annotations to standard error, and add the Markdown report to the summary."""
    if environ.get("GITHUB_ACTIONS") == "true":
        from kindlm.reports.github_annotations import annotations_of, as_command

        lines = [as_command(annotation) for annotation in annotations_of(view, options.folder)]
        if lines:
            sys.stderr.flush()
            out = sys.stderr.below if isinstance(sys.stderr, _Inert) else sys.stderr
            # A command needs a line of its own, and the last line may be unfinished.
            out.write("\n" + "".join(f"{line}\n" for line in lines))
            out.flush()
    if named := environ.get("GITHUB_STEP_SUMMARY"):
        from kindlm.reports.markdown_report import write_report

        try:
            with Path(named).open("a", encoding="utf-8") as summary:
                if summary.tell():  # a report of this step before
                    summary.write("\n")
                write_report(view, summary, options)
        except OSError as error:
            warn(f"The summary of the job was not written: {error.strerror}.")
