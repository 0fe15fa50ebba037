"""`kindlm label`: give a recorded run a name, by which other commands find it."""

from __future__ import annotations

from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, RunArgument, VerboseOption


def label_command(
    run: RunArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The name.", show_default=False)
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the name away.")] = False,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Give a run a name. A run has one: the last that it was given."""
    from kindlm.cli.console import fail
    from kindlm.cli.labelling import label_run, remove_label
    from kindlm.cli.reading import misused

    del verbose
    if (name is None) is not remove:
        fail([misused("A run is given a NAME, or it is taken away with --remove.", "label")])
    if name is None:
        remove_label(db, run)
    else:
        label_run(db, run, name)
