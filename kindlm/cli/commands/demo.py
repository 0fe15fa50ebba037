"""`kindlm demo`: the whole story in under a minute, without a key and without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo_command(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where the demo's files and history go.")
    ] = Path("kindlm-demo"),
) -> None:
    """Test an agent, change it, test it again, and see what changed."""
    from kindlm.cli.demo import run_demo

    raise typer.Exit(run_demo(folder))
