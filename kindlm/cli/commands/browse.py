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
    import threading
    import webbrowser
    from ipaddress import ip_address

    from kindlm.browse.pages import START_PAGE
    from kindlm.browse.server import listen, make_datasette, serve
    from kindlm.cli.console import note, warn
    from kindlm.cli.history import existing_history, open_history, or_fail

    del verbose
    with open_history(db):
        database = existing_history(db).database
    listening = or_fail(listen(host, port))
    address, bound_port = listening.getsockname()[:2]
    if not ip_address(address.partition("%")[0]).is_loopback:
        warn(
            f"Everybody who can reach {address} can read the whole history.",
            "Without --host only programs on this machine can.",
        )
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{bound_port}{START_PAGE}"

    def tell() -> None:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        note("Ctrl-C ends it.")
        if not no_open:
            # Some browsers return when they are closed, and pages are to be served before that.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    with listening:
        serve(make_datasette(database), listening, tell)
