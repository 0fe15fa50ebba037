"""`kindlm import`: bring in what another history exported, or what a run could not write."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, VerboseOption


def import_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="What kindlm export wrote, the file that kindlm test told of, a baseline of"
            " KindLM, or a golden trace or results of EvalView; - for standard input.",
        ),
    ],
    suite: Annotated[
        str | None,
        typer.Option("--suite", "-s", help="The suite of results that name none: EvalView's."),
    ] = None,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Bring in a run: exported, not written, or of another program. Twice is harmless."""
    import os

    from kindlm.cli.console import make_console, note, warn
    from kindlm.cli.history import or_fail
    from kindlm.cli.importing import import_file
    from kindlm.cli.merging import withheld
    from kindlm.cli.shown_path import db_option
    from kindlm.recording.project import find_project
    from kindlm.wording import count

    del verbose
    project = or_fail(find_project(Path.cwd(), database=db, environ=os.environ))
    imported = or_fail(import_file(file, project, suite))
    if imported.missing:
        ends = f"{file} ends early: {count(imported.missing, 'event')} of it are missing."
        warn(ends, "What it has was imported.")
    console = make_console()
    for warning in imported.warnings:
        warn(warning, console=console)
    known = f"; {imported.known:,} were there already" if imported.known else ""
    filled = f"; {count(imported.filled, 'withheld text')} filled in" if imported.filled else ""
    note(f"{count(imported.added, 'event')} imported{known}{filled}.", console)
    if imported.withheld:
        warn(*withheld(imported.withheld, file), console=console)
    for run in imported.runs:
        note(f"See it with: kindlm show {run}{db_option(db)}", console)
