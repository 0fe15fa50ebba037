"""What the commands that show recorded runs share."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kindlm.cli.console import fail, wants_color
from kindlm.cli.history import existing_history, open_history, or_fail
from kindlm.errors import ErrorCode, KindlmError
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.reports.registry import ReportOptions


@contextmanager
def open_view(database: Path | None, wanted: str) -> Iterator[RunView]:
    """Open the run or the group of shards that a user names; end the command if there is none."""
    with open_history(database) as connection:
        yield RunView(connection, or_fail(find_run_or_group(connection, wanted)))


def exit_code(view: RunView) -> int:
    """Return what a command that shows a run ends with.

    That is 0 for a run, whatever its verdict: `kindlm test` has ended with it. Of a group nothing
    else tells: 1 unless all its shards are here and it passed.
    """
    return 0 if view.group is None or view.passed else 1


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


def require_names(*wanted: str | None) -> None:
    """End the command if a run is named by nothing, as by a variable that a script never set."""
    if any(name is not None and not name.strip() for name in wanted):
        error = KindlmError(
            ErrorCode.CONFIG_NOT_FOUND,
            "A run is named by an empty text.",
            "Leave the name out for the default, or check the variable that it is from. The"
            " recorded runs: kindlm runs",
        )
        fail([error])


def no_execution(wanted: str, view: RunView) -> KindlmError:
    """Return the error that a run has no such execution."""
    what = "run" if view.group is None else "group"
    by_id = "" if view.group is None else f"Name it by its id, such as {view.runs[0]}-1. "
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"The {what} {view.id} has no execution {wanted!r}.",
        f"{by_id}List its executions: kindlm report {view.id} --format json",
    )


def misused(message: str, command: str) -> KindlmError:
    """Return the error that a command was given what does not go together."""
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR, message, f"How it is used: kindlm {command} --help"
    )
