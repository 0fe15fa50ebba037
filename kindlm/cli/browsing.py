"""The history in the web browser: where it is served, and who is told."""

from __future__ import annotations

import sys
import threading
import webbrowser
from ipaddress import ip_address
from pathlib import Path

from kindlm.browse.descriptions import INSTANCE, START_PAGE, described, merged, settings
from kindlm.browse.server import LOOPBACK_NAMES, listen, make_datasette, serve
from kindlm.cli.console import note, warn
from kindlm.cli.history import existing_history, open_history, or_fail, project_here
from kindlm.recording.project import regression_threshold
from kindlm.reports.untrusted import printed_json


def print_metadata(database: Path | None) -> None:
    """Print descriptions, facets and saved queries of the history, as Datasette's metadata.

    Datasette names a database by its file.
    """
    name = project_here(database).database.stem
    told = INSTANCE | {"databases": {name: merged(described(), settings())}}
    sys.stdout.write(printed_json(told, indent=2) + "\n")


def browse(database: Path | None, host: str, port: int | None, *, opened: bool) -> None:
    """Serve the history until Ctrl-C; with `opened`, show it in the web browser."""
    with open_history(database):
        project = existing_history(database)
    threshold = or_fail(regression_threshold(project.root))
    listening = or_fail(listen(host, port))
    shown = f"[{host}]" if ":" in host else host
    address, bound_port = listening.getsockname()[:2]
    names = None
    if ip_address(address.partition("%")[0]).is_loopback:
        names = LOOPBACK_NAMES | {shown.lower()}
    else:
        warn(
            f"Everybody who can reach {address} can read the whole history.",
            "Without --host only programs on this machine can.",
        )
    url = f"http://{shown}:{bound_port}{START_PAGE}"

    def tell() -> None:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        note("Ctrl-C ends it.")
        if opened:
            # Some browsers return when they are closed, and pages are to be served before that.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    with listening:
        serve(make_datasette(project.database, threshold), listening, tell, names)
