"""`kindlm verify`: is everything as it was recorded?"""

from __future__ import annotations

from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, VerboseOption


def verify_command(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN", help="A run: its id or beginning, label, or latest. Default: all."
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option("--head", metavar="HASH", help="The head hash that a report of RUN printed."),
    ] = None,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Check recorded events and texts against their hashes.

    Of a RUN that is named, also whether its tables are what its events give.
    """
    import sys

    from kindlm.cli.verification import check_history

    del verbose
    ok = check_history(db, run, head, sys.stdout)
    raise typer.Exit(0 if ok else 1)
