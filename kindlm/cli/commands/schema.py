"""`kindlm schema`: the JSON Schema of kindlm.yaml, for editors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.options import VerboseOption


def schema_command(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: the terminal.")
    ] = None,
    verbose: VerboseOption = False,
) -> None:
    """Print the JSON Schema of kindlm.yaml."""
    import sys

    from kindlm.cli.schema_file import schema_text, write_schema

    del verbose
    if output is None:
        sys.stdout.write(schema_text())
    else:
        write_schema(output)
