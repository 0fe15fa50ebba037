"""`kindlm merge`: histories of other machines or shards become part of this one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, VerboseOption


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
    from kindlm.cli.merging import merge_histories, problems_of, still_going_on, withheld
    from kindlm.cli.search_index import forget_erased
    from kindlm.cli.shown_path import db_option
    from kindlm.errors import KindlmError
    from kindlm.recording.project import find_project
    from kindlm.wording import count

    del verbose
    project = or_fail(find_project(Path.cwd(), database=db, environ=os.environ))
    refused: list[KindlmError] = []
    console = make_console()
    merged = or_fail(merge_histories(files, project.database))
    if any(one.taken.erased or one.taken.filled for one in merged):
        forget_erased(project.database)
    for one in merged:
        file, taken = one.file, one.taken
        known = f"; {taken.known:,} were there already" if taken.known else ""
        erased = f"; {count(taken.erased, 'text')} erased, as there" if taken.erased else ""
        filled = f"; {count(taken.filled, 'withheld text')} filled in" if taken.filled else ""
        note(f"{file}: {count(taken.added, 'event')} merged{known}{erased}{filled}.", console)
        if taken.withheld:
            warn(*withheld(taken.withheld, file), console=console)
        for problem in still_going_on(one):
            warn(problem.message, problem.hint, console)
        refused += problems_of(one)
    if refused:
        show(refused, console)
        raise typer.Exit(1)
    note(f"See them with: kindlm runs{db_option(db)}", console)
