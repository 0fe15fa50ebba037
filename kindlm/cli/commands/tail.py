"""`kindlm tail`: a run followed from another terminal."""

from __future__ import annotations

import typer

from kindlm.cli.options import DatabaseOption, RunArgument, VerboseOption


def tail_command(
    run: RunArgument = "latest", db: DatabaseOption = None, verbose: VerboseOption = False
) -> None:
    """Follow a run while it goes on, from another terminal; ends when it ends, with its verdict."""
    from kindlm.cli.tailing import tail_run

    del verbose
    if not tail_run(db, run):
        raise typer.Exit(1)
