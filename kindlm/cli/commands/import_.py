"""`kindlm import`: bring in the events that a run could not write into its history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, VerboseOption

__all__ = ["import_command"]


def import_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file that kindlm test told of.")
    ],
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Bring in events that a run could not write, when the disk was full. Twice is harmless."""
    from kindlm.cli.console import make_console, note, warn
    from kindlm.cli.history import existing_history, or_fail
    from kindlm.cli.importing import import_file
    from kindlm.wording import count

    del verbose
    imported = or_fail(import_file(file, existing_history(db).database))
    if imported.missing:
        ends = f"{file} ends early: {count(imported.missing, 'event')} of it are missing."
        warn(ends, "What it has was imported.")
    console = make_console()
    known = f"; {imported.known:,} were there already" if imported.known else ""
    note(f"{count(imported.added, 'event')} imported{known}.", console)
    for run in imported.runs:
        note(f"See it with: kindlm show {run}", console)
