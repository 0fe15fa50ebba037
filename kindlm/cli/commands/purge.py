"""`kindlm purge`: texts are erased for good."""

from __future__ import annotations

from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, VerboseOption


def purge_command(
    run: Annotated[
        list[str] | None,
        typer.Option(
            "--run", metavar="RUN", help="Texts of this run that no other refers to; repeatable."
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="AGE", help="Texts of runs that are older: 90d, 2026-01-31."
        ),
    ] = None,
    matching: Annotated[
        str | None,
        typer.Option("--matching", metavar="PATTERN", help="Texts with this regular expression."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before erasing.")] = False,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Erase recorded texts for good. Events stay, and kindlm verify still holds."""
    from kindlm.cli.purging import Selection, ask, purge

    del verbose
    purge(db, Selection(tuple(run or ()), older_than, matching), None if yes else ask)
