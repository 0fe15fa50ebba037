"""What the commands that show recorded runs share."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from kindlm.cli.console import wants_color
from kindlm.cli.history import existing_history
from kindlm.errors import ErrorCode, KindlmError
from kindlm.reports.registry import ReportOptions

__all__ = ["misused", "no_execution", "report_options"]


def report_options(database: Path | None, *, verbose: bool) -> ReportOptions:
    """Return how reports on standard output are to look."""
    path = existing_history(database).database
    here = Path.cwd()
    return ReportOptions(
        color=wants_color(sys.stdout),
        width=shutil.get_terminal_size().columns,
        verbose=verbose,
        database=os.path.relpath(path) if path.is_relative_to(here) else str(path),
    )


def no_execution(wanted: str, run: str) -> KindlmError:
    """Return the error that a run has no such execution."""
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"The run {run} has no execution {wanted!r}.",
        f"List its executions: kindlm report {run} --format json",
    )


def misused(message: str, command: str) -> KindlmError:
    """Return the error that a command was given what does not go together."""
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR, message, f"How it is used: kindlm {command} --help"
    )
