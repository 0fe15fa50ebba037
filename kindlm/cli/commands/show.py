"""`kindlm show`: a recorded run as it was told after it ended, or one execution of it."""

from __future__ import annotations

from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, RunArgument, VerboseOption

__all__ = ["show_command"]


def show_command(
    run: RunArgument = "latest",
    execution: Annotated[
        str | None,
        typer.Argument(metavar="EXECUTION", help="An execution's id, or its number in the run."),
    ] = None,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Show a run, or one of its executions with its transcript."""
    import sys

    from kindlm.cli.console import fail
    from kindlm.cli.history import open_run
    from kindlm.cli.reading import no_execution, report_options
    from kindlm.history.run_view import RunView

    options = report_options(db, verbose=verbose)
    with open_run(db, run) as (connection, identity):
        view = RunView(connection, identity)
        if execution is None:
            from kindlm.reports.terminal import REPORT

            REPORT.write(view, sys.stdout, options)
            return
        from kindlm.reports.execution_page import render_execution

        found = view.execution(execution)
        if found is None:
            fail([no_execution(execution, identity)])
        render_execution(view, found, sys.stdout, options)
