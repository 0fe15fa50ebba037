"""`kindlm validate`: all problems of all files, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.options import ListFormat, StrictOption, VerboseOption


def validate_command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH",
            help="Files, folders or pack:NAME. By default what kindlm test runs.",
        ),
    ] = None,
    form: Annotated[
        ListFormat, typer.Option("--format", help="For people, or for editors.")
    ] = ListFormat.TERMINAL,
    strict: StrictOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Check suites without running them: nothing is called."""
    import os
    import sys

    from kindlm.cli.console import note, show
    from kindlm.cli.history import or_fail
    from kindlm.cli.validation import summarise, validation_json
    from kindlm.recording.loading import default_paths, load_paths
    from kindlm.recording.project import find_project
    from kindlm.recording.secrets import redactor

    del verbose
    root = or_fail(find_project(Path.cwd(), database=None, environ=os.environ)).root
    held = paths or or_fail(default_paths(Path()))
    loaded = or_fail(load_paths(held, root, strict=strict))
    summary = summarise(loaded)
    if form is ListFormat.JSON:
        sys.stdout.write(redactor(os.environ)(validation_json(loaded, summary)))
    else:
        show(loaded.diagnostics)
        if loaded.ignored:
            note(f"Ignored, no tests: {', '.join(map(str, loaded.ignored))}")
        sys.stdout.write(f"{summary}\n")
    raise typer.Exit(1 if summary.errors else 0)
