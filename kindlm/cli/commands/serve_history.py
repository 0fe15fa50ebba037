"""`kindlm serve-history`: serve the pages of one history for a team, and its pushes and pulls."""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kindlm.cli.commands.token import usable_tokens
from kindlm.cli.console import note, or_fail, refuse, warn
from kindlm.cli.history import project_here, remove_copies
from kindlm.cli.journal import recorder_of
from kindlm.cli.logs import log_as_asked
from kindlm.cli.options import DATABASE, option, parse_erased_before, parse_since
from kindlm.history.runs import held_lock
from kindlm.recording.history_file import open_log
from kindlm.recording.project import regression_threshold
from kindlm.recording.purging import erase, runs_before, streams_to_purge, with_news
from kindlm.team.protocol import is_loopback
from kindlm.team.token_store import TokenStore
from kindlm.wording import count
from kindlm_store import EventLog, StoreError
from kindlm_store.erasing import find_erasable

if TYPE_CHECKING:
    from kindlm.browse.routes import Actor, RecordReview, Reviewer

_DAY_S = 24 * 3600
_HEADER = re.compile(r"[A-Za-z0-9-]+", re.ASCII)


def serve_history_command(
    host: str = option("--host HOST", "Address to bind.", default="127.0.0.1"),
    port: int = option("--port N", "Port to bind.", default=8002, min=0, max=65535),
    trust_header: str | None = option(
        "--trust-header NAME",
        "Header in which a reverse proxy names the person who looks: X-Forwarded-User."
        " The proxy must set it in every request.",
    ),
    keep: str | None = option(
        "--keep AGE",
        "Erase content of runs older than this, such as 180d, at the start and daily."
        " Their events stay.",
    ),
    db: Path | None = DATABASE,
) -> None:
    """Serve a history to a team.

    The team pushes runs to it, pulls runs from it, and sees its pages. Ctrl-C ends it.
    """
    from kindlm.browse.datasette_server import listen, make_datasette
    from kindlm.browse.descriptions import START_PAGE
    from kindlm.team.history_api import HistoryApi
    from kindlm.team.pages import Pages
    from kindlm.team.team_server import make_app, serve

    if trust_header is not None and not _HEADER.fullmatch(trust_header):
        refuse(f"{trust_header!r} is not a header.", "Name one: --trust-header X-Forwarded-User")
    if keep is not None:
        before = parse_erased_before(keep, "--keep")
        if before > parse_since("1d"):
            refuse(
                f"--keep {keep!r} keeps content for less than a day.",
                "Write an age of a day or more, such as --keep 180d. To keep all: no --keep",
            )
    project = project_here(db)
    threshold = or_fail(regression_threshold(project.root))
    with ExitStack() as stack:
        with usable_tokens(project.database):
            tokens = stack.enter_context(closing(TokenStore(project.database)))
        has_token = any(token["state"] == "valid" for token in tokens.tokens())
        create = "kindlm token create --name ci --scopes push,pull"
        if not (has_token or is_loopback(host)):
            refuse(
                f"kindlm does not listen on {host} without a token: no one could use the server.",
                f"Create one first: {create}",
            )
        listening = stack.enter_context(or_fail(listen(host, port)))
        log = stack.enter_context(open_log(project.database))
        api = HistoryApi(log, tokens)
        # Closed before the log, so that pushes in progress are stored.
        stack.callback(api.close)
        shown = f"[{host}]" if ":" in host else host
        address, bound = listening.getsockname()[:2]
        is_local = is_loopback(address)
        url = f"http://{shown}:{bound}"
        if keep is not None:
            stack.enter_context(retention(log, keep))
        datasette = make_datasette(project.database, threshold, reviews_in(project.database))
        app = make_app(api, Pages(datasette, tokens, trust_header), project.database)
        stack.enter_context(log_as_asked({"KINDLM_LOG": "error"} | os.environ))
        sys.stdout.write(f"{url}{START_PAGE}\n")
        sys.stdout.flush()
        if not has_token:
            note(f"Create a token: {create}")
        place = shlex.quote(url) if is_local else "https://THE-ADDRESS-OF-ITS-PROXY"
        note(f"On each machine: kindlm login --url {place}")
        if not is_local:
            warn(
                f"Requests to {address} are not encrypted.",
                "Put a reverse proxy with TLS in front of it: clients send tokens over https.",
            )
        if not is_local and trust_header is not None:
            warn(
                f"Anyone who reaches {address} without the proxy can claim any name.",
                f"Let only the proxy reach it, and let it set {trust_header} in each request.",
            )
        note("Ctrl-C ends it.")
        # A signal is the usual way to end a server.
        with suppress(KeyboardInterrupt):
            serve(app, listening)


def reviews_in(database: Path) -> Reviewer:
    """Return what records reviews on the pages, under the name of the viewer.

    A review has a log of its own. A log that once failed to append, such as on a full disk, writes
    nothing any more, and the log that takes pushes must go on.
    """
    from kindlm.team.pages import reviewing

    def reviewer(actor: Actor | None) -> RecordReview | None:
        name = reviewing(actor)
        return None if name is None else recorder_of(database, name)

    return reviewer


@contextmanager
def retention(log: EventLog, keep: str) -> Iterator[None]:
    """Erase content of runs older than `--keep`, now and daily, in a thread."""
    ended = threading.Event()

    def work() -> None:
        while True:
            erase_older(log, parse_since(keep, option="--keep"))
            if ended.wait(_DAY_S):
                return

    thread = threading.Thread(target=work, name="retention")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def erase_older(log: EventLog, before: str) -> None:
    """Erase the content of runs that began before a time, except what newer runs refer to."""
    try:
        with closing(log.reader()) as db:
            runs = [run for run in runs_before(db, before) if held_lock(db, run) is None]
            runs = with_news(db, runs)
            if not runs:
                return
            streams = streams_to_purge(db, runs)
        found = find_erasable(log, streams)
        try:
            erased = erase(log, found, runs, by="retention")
        finally:
            remove_copies(log.path)  # also after a failure, which may come after the erasure
    except (StoreError, OSError, sqlite3.Error) as error:
        warn(f"Old content was not erased: {error}.", "kindlm tries again tomorrow.")
        return
    what = f"{count(erased.texts, 'text')} of {count(len(runs), 'run')}"
    note(f"Retention erased {what} from before {before[:10]}.")
