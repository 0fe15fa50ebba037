"""`kindlm browse`: the history in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, VerboseOption


def browse_command(
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Default: 8001, or a free one."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others than yours can read it all.")
    ] = "127.0.0.1",
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Do not open the web browser.")
    ] = False,
    metadata: Annotated[
        bool,
        typer.Option(
            "--metadata", help="Print what tells a Datasette without kindlm of the tables."
        ),
    ] = False,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Open the history in the web browser, until Ctrl-C."""
    from kindlm.cli.browsing import browse, print_metadata

    del verbose
    if metadata:
        print_metadata(db)
        return
    browse(db, host, port, opened=not no_open)
