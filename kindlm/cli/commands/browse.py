"""`kindlm browse`: open the history in a web browser."""

from __future__ import annotations

import sys
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from kindlm.cli.console import note, or_fail, warn
from kindlm.cli.history import existing_history, open_history, project_here
from kindlm.cli.journal import author, recorder_of
from kindlm.cli.options import DATABASE, flag, option
from kindlm.recording.history_file import project_secrets
from kindlm.recording.project import regression_threshold
from kindlm.reports.untrusted import printed_json
from kindlm.team.protocol import is_loopback

if TYPE_CHECKING:
    from kindlm.browse.routes import Reviewer


def browse_command(
    port: int | None = option(
        "--port N", "Port to bind. Default: 8001, or a free one.", min=0, max=65535
    ),
    host: str = option(
        "--host HOST",
        "Address to bind. Anyone who can reach it can read the history.",
        default="127.0.0.1",
    ),
    no_open: bool = flag("--no-open", "Do not open the web browser."),
    prints_metadata: bool = flag(
        "--metadata", "Print table descriptions for a Datasette without kindlm."
    ),
    db: Path | None = DATABASE,
) -> None:
    """Open the history in a web browser. Ctrl-C ends it."""
    from kindlm.browse.descriptions import INSTANCE, START_PAGE, metadata

    if prints_metadata:
        # Datasette names a database after its file.
        document = INSTANCE | {"databases": {project_here(db).database.stem: metadata()}}
        sys.stdout.write(printed_json(document, indent=2) + "\n")
        return
    from kindlm.browse.datasette_server import LOOPBACK_NAMES, listen, make_datasette, serve

    with open_history(db):
        project = existing_history(db)
    threshold = or_fail(regression_threshold(project.root))
    listening = or_fail(listen(host, port))
    shown = f"[{host}]" if ":" in host else host
    address, bound_port = listening.getsockname()[:2]
    names = None
    if is_loopback(address):
        names = LOOPBACK_NAMES | {shown.lower()}
    else:
        warn(
            f"Everybody who can reach {address} can read the whole history.",
            "Without --host only programs on this machine can.",
        )
    url = f"http://{shown}:{bound_port}{START_PAGE}"
    # Only the user of this machine can review.
    datasette = make_datasette(project.database, threshold, reviews_of(db) if names else None)
    with listening:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        note("Ctrl-C ends it.")
        if not no_open:
            # Some browsers only return when they are closed.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        serve(datasette, listening, names)


def reviews_of(database: Path | None) -> Reviewer:
    """Return what records the user's reviews on the pages."""
    project = existing_history(database)
    secret = project_secrets(project.root)
    return lambda _: recorder_of(project.database, author(), secret)
