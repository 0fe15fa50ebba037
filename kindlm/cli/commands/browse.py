"""`kindlm browse`: the history in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, VerboseOption

__all__ = ["browse_command"]


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
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Open the history in the web browser, until Ctrl-C."""
    import sys
    import webbrowser

    from kindlm.browse.pages import START_PAGE
    from kindlm.browse.server import listen, make_datasette, serve
    from kindlm.cli.console import note
    from kindlm.cli.history import existing_history, open_history, or_fail

    del verbose
    with open_history(db):
        database = existing_history(db).database
    listening = or_fail(listen(host, port))
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening.getsockname()[1]}{START_PAGE}"

    def tell() -> None:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        note("Ctrl-C ends it.")
        if not no_open:
            webbrowser.open(url)

    with listening:
        serve(make_datasette(database), listening, tell)
