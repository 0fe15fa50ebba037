"""`kindlm report`: any report of any run, any time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, RunArgument, VerboseOption

__all__ = ["report_command"]


def report_command(
    run: RunArgument = "latest",
    form: Annotated[str, typer.Option("--format", help="terminal, json or junit.")] = "terminal",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: the terminal.")
    ] = None,
    run_id: Annotated[str | None, typer.Option("--run-id", hidden=True)] = None,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Write a report of a recorded run."""
    from kindlm.cli.console import fail
    from kindlm.cli.history import existing_history, open_run, or_fail
    from kindlm.cli.reading import report_options
    from kindlm.cli.reporters import parse_reporters, spare, write_reports
    from kindlm.history.run_view import RunView

    reporters = or_fail(parse_reporters([form], output))
    or_fail(spare(reporters, existing_history(db).database))
    options = report_options(db, verbose=verbose)
    with open_run(db, run_id or run) as (connection, identity):
        errors = write_reports(reporters, RunView(connection, identity), options)
    if errors:
        fail(errors)
