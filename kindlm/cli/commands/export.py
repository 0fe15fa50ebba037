"""`kindlm export`: a recorded run as a file that another history can import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, RunArgument, VerboseOption


def export_command(
    run: RunArgument = "latest",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Default, and -: standard output."),
    ] = None,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Write a run, its texts and what is noted of it as JSON Lines, for kindlm import."""
    import sys

    from kindlm.cli.console import note, warn
    from kindlm.cli.exporting import export_run
    from kindlm.cli.output_file import STDOUT
    from kindlm.wording import count

    del verbose
    if output == STDOUT:
        output = None
    exported = export_run(db, run, output, sys.stdout.buffer)
    sys.stdout.buffer.flush()
    for missing in exported.missing:
        warn(f"Run {missing}, which {exported.runs[0]} was derived from, is not in this history.")
    if output is not None:
        place = f"{output}, in place of the file that was there" if exported.replaced else output
        note(f"{', '.join(exported.runs)}: {count(exported.events, 'event')} written to {place}.")
        note(f"Bring it into another history: kindlm import {output}")
