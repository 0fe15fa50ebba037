"""`kindlm backup`: a copy of the history, made while it is in use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, VerboseOption


def backup_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that is not there yet.")],
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Copy the history to a new file, and check the copy. Runs may go on meanwhile."""
    from kindlm.cli.backup import back_up
    from kindlm.cli.console import note
    from kindlm.wording import count

    del verbose
    found = back_up(db, file)
    note(f"{count(found.events, 'event')} backed up to {file}, all as recorded.")
