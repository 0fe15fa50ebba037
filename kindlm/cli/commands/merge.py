"""`kindlm merge`: histories of other machines or shards become part of this one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, VerboseOption

__all__ = ["merge_command"]


def merge_command(
    files: Annotated[
        list[Path], typer.Argument(metavar="DB…", help="Histories of other machines, or of shards.")
    ],
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Merge other histories into this one, in any order. Twice is harmless."""
    import os

    from kindlm.cli.console import make_console, note, show, warn
    from kindlm.cli.history import or_fail
    from kindlm.cli.merging import explained, merge_histories, withheld
    from kindlm.cli.search_index import forget_erased
    from kindlm.cli.shown_path import db_option
    from kindlm.recording.project import find_project
    from kindlm.wording import count

    del verbose
    project = or_fail(find_project(Path.cwd(), database=db, environ=os.environ))
    refused = []
    console = make_console()
    merged = or_fail(merge_histories(files, project.database))
    if any(taken.erased or taken.filled for _, taken in merged):
        forget_erased(project.database)
    for file, taken in merged:
        known = f"; {taken.known:,} were there already" if taken.known else ""
        erased = f"; {count(taken.erased, 'text')} erased, as there" if taken.erased else ""
        filled = f"; {count(taken.filled, 'withheld text')} filled in" if taken.filled else ""
        note(f"{file}: {count(taken.added, 'event')} merged{known}{erased}{filled}.", console)
        if taken.withheld:
            warn(*withheld(taken.withheld, file), console=console)
        for refusal in taken.refused:
            problem = explained(file, refusal)
            if refusal.kind == "going on":
                warn(problem.message, problem.hint, console)
            else:
                refused.append(problem)
    if refused:
        show(refused, console)
        raise typer.Exit(1)
    note(f"See them with: kindlm runs{db_option(db)}", console)
