"""`kindlm browse` and `kindlm serve-history`: a history in the browser, for one person or a team.

`kindlm token` manages who may push to the history of a team, and pull from it.
"""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from kindlm.cli.commands.upkeep import remove_abandoned
from kindlm.cli.console import fail, note, or_fail, refuse, warn
from kindlm.cli.history import (
    db_option,
    disk_full,
    existing_history,
    forget_erased,
    open_history,
    project_here,
)
from kindlm.cli.journal import author
from kindlm.cli.logs import log_as_asked
from kindlm.cli.options import (
    DATABASE,
    LIST_FORMAT,
    ListFormat,
    argument,
    flag,
    option,
    parse_since,
)
from kindlm.errors import ErrorCode
from kindlm.recording.history_file import open_log, project_secrets
from kindlm.recording.purging import erase, runs_before, streams_to_purge, with_news
from kindlm.reports.untrusted import one_line, printed_json
from kindlm.team.protocol import is_loopback
from kindlm.team.token_store import Limits, TokenStore, token_file
from kindlm.wording import count, shown_path
from kindlm_store import EventLog, StoreError
from kindlm_store.erasing import find_erasable

if TYPE_CHECKING:
    from kindlm.browse.routes import Actor, RecordReview, Reviewer


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
    metadata: bool = flag("--metadata", "Print table descriptions for a Datasette without kindlm."),
    db: Path | None = DATABASE,
) -> None:
    """Open the history in a web browser. Ctrl-C ends it."""
    if metadata:
        _print_metadata(db)
        return
    from kindlm.browse.datasette_server import LOOPBACK_NAMES, listen, make_datasette, serve
    from kindlm.browse.descriptions import START_PAGE
    from kindlm.recording.project import regression_threshold

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

    def tell() -> None:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        note("Ctrl-C ends it.")
        if not no_open:
            # Some browsers return when they are closed, and pages are to be served before that.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    # Anyone else who can reach the pages can only read.
    made = make_datasette(project.database, threshold, reviews_of(db) if names else None)
    with listening:
        serve(made, listening, tell, names)


def reviews_of(database: Path | None) -> Reviewer:
    """Return what records the user's reviews from pages of a history."""
    from kindlm.cli.commands.review import recorder_of

    project = existing_history(database)
    opened = partial(open_log, project.database, project_secrets(project.root))
    return lambda _: recorder_of(opened, author())


def _print_metadata(database: Path | None) -> None:
    """Print descriptions, facets and saved queries of the history, as Datasette's metadata.

    Datasette names a database by its file.
    """
    from kindlm.browse.descriptions import INSTANCE, metadata

    name = project_here(database).database.stem
    told = INSTANCE | {"databases": {name: metadata()}}
    sys.stdout.write(printed_json(told, indent=2) + "\n")


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
    """Serve one history for a team: its pages, and pushes and pulls. Ctrl-C ends it."""
    from kindlm.browse.datasette_server import listen, make_datasette
    from kindlm.browse.descriptions import START_PAGE
    from kindlm.recording.project import regression_threshold
    from kindlm.team.history_api import HistoryApi
    from kindlm.team.pages import Pages
    from kindlm.team.team_server import make_app, serve

    if trust_header is not None and not _HEADER.fullmatch(trust_header):
        refuse(f"{trust_header!r} is no header.", "Name one: --trust-header X-Forwarded-User")
    if keep is not None:
        parse_since(keep, option="--keep")
    project = project_here(db)
    threshold = or_fail(regression_threshold(project.root))
    with ExitStack() as stack:
        tokens = stack.enter_context(_open_tokens(project.database, create=True))
        has_token = any(token.state == "valid" for token in tokens.tokens())
        create = f"kindlm token create --name ci --scopes push,pull{db_option(db)}"
        if not (has_token or is_loopback(host)):
            refuse(
                f"kindlm does not listen on {host} before there is a token: it could not be used.",
                f"Create one first: {create}",
            )
        listening = stack.enter_context(or_fail(listen(host, port)))
        log = stack.enter_context(open_log(project.database))
        api = HistoryApi(log, tokens)
        # Before the log is closed, so that pushes in progress are stored.
        stack.callback(api.close)
        shown = f"[{host}]" if ":" in host else host
        address, bound = listening.getsockname()[:2]
        is_local = is_loopback(address)
        url = f"http://{shown}:{bound}"

        def tell() -> None:
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

        if keep is not None:
            stack.enter_context(retention(log, keep))
        datasette = make_datasette(project.database, threshold, reviews_in(log))
        pages = Pages(datasette, tokens, trust_header)
        app = make_app(api, pages, project.database)
        stack.enter_context(log_as_asked({"KINDLM_LOG": "error"} | os.environ))
        # The usual way to end a server: a service manager also sends a signal.
        with suppress(KeyboardInterrupt):
            serve(app, listening, tell)


def reviews_in(log: EventLog) -> Reviewer:
    """Return what records the reviews of people who look at a served history, by their names."""
    from kindlm.cli.commands.review import recorder_of
    from kindlm.team.pages import reviewing

    def reviewer(actor: Actor | None) -> RecordReview | None:
        name = reviewing(actor)
        return None if name is None else recorder_of(lambda: nullcontext(log), name)

    return reviewer


@contextmanager
def retention(log: EventLog, keep: str) -> Iterator[None]:
    """Erase content of runs that are older than `--keep`, at once and daily."""
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
    """Erase the content of runs that began before a time; report how much, or why that failed.

    Content that newer runs refer to stays until these are as old.
    """
    try:
        with closing(log.reader()) as db:
            runs = with_news(db, runs_before(db, before).ended)
            if not runs:
                return
            streams = streams_to_purge(db, runs)
        found = find_erasable(log, streams.chosen, forgotten=streams.forgotten)
        try:
            erased = erase(log, found, runs, by="retention")
        finally:
            # Texts may be erased even if the disk failed afterwards.
            forget_erased(log.path)
            remove_abandoned(log.path.parent)
    except (StoreError, OSError, sqlite3.Error) as error:
        warn(f"Old content was not erased: {error}.", "kindlm tries again tomorrow.")
        return
    what = f"{count(erased.texts, 'text')} of {count(len(runs), 'run')}"
    note(f"Retention erased {what} from before {before[:10]}.")


token_app = typer.Typer(rich_markup_mode=None)

_MB = 1_000_000
_MOST = 1_000_000_000

_COLUMNS = ("NAME", "STATE", "SCOPES", "PROJECT", "EXPIRES", "LAST USED", "MB TODAY", "MB")


@token_app.command("create")
def create_command(
    name: str = option("--name NAME", "Name of the token, such as ci.", default=...),
    scopes: str = option(
        "--scopes LIST", "push, pull and review, with commas.", default="push,pull"
    ),
    project: str | None = option("--project NAME", "Only runs of this project."),
    days: int | None = option("--days N", "Expire after N days.", min=1, max=36_500),
    pushes_per_minute: int | None = option(
        "--pushes-per-minute N", "Allow N pushes a minute.", min=1, max=_MOST
    ),
    mb_per_day: int | None = option(
        "--mb-per-day N", "Allow N MB a day, unpacked.", min=1, max=_MOST
    ),
    mb_total: int | None = option("--mb-total N", "Allow N MB in all, unpacked.", min=1, max=_MOST),
    db: Path | None = DATABASE,
) -> None:
    """Create a token for a history server, and print it once."""
    limits = Limits(pushes_per_minute, mb_per_day and mb_per_day * _MB, mb_total and mb_total * _MB)
    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    with _tokens(project_here(db).database, create=True) as store:
        token = or_fail(store.create(name, wanted, project=project, days=days, limits=limits))
    sys.stdout.write(f"{token}\n")
    sys.stdout.flush()
    note("This token is shown only now. Keep it as a secret, such as KINDLM_TOKEN in CI.")


@token_app.command("list")
def list_command(form: ListFormat = LIST_FORMAT, db: Path | None = DATABASE) -> None:
    """List tokens, with what was pushed with them. The tokens themselves are not stored."""
    from kindlm.cli.commands.runs import table

    with _tokens(project_here(db).database) as store:
        found = store.tokens()
    if form == "json":
        sys.stdout.write(printed_json([asdict(each) for each in found], indent=2) + "\n")
        return
    rows = [
        (
            token.name, token.state, ",".join(token.scopes), one_line(token.project or "-"),
            token.expires_at or "-", token.used_at or "-",
            f"{token.bytes_today / _MB:.1f}", f"{token.bytes / _MB:.1f}",
        )
        for token in found
    ]  # fmt: skip
    sys.stdout.write(table(_COLUMNS, rows))


@token_app.command("revoke")
def revoke_command(
    name: str = argument("NAME", "Name of the token."), db: Path | None = DATABASE
) -> None:
    """Revoke a token. A running server refuses it at once."""
    with _tokens(project_here(db).database) as store:
        or_fail(store.revoke(name))
    note(f"The token {name} is revoked.")


def _open_tokens(database: Path, *, create: bool = False) -> TokenStore:
    """Open the tokens of a history; end the command if that fails, or there are none."""
    if not create and not token_file(database).exists():
        refuse(
            f"There are no tokens for {shown_path(database)}.",
            "Create one: kindlm token create --name ci; or name the history with --db.",
            code=ErrorCode.CONFIG_NOT_FOUND,
        )
    try:
        return TokenStore.open(database)
    except (OSError, sqlite3.Error) as error:
        _fail_to_use(database, "opened", error)


@contextmanager
def _tokens(database: Path, *, create: bool = False) -> Iterator[TokenStore]:
    """Open the tokens of a history; end the command if they cannot be written."""
    with _open_tokens(database, create=create) as store:
        try:
            yield store
        except sqlite3.Error as error:
            _fail_to_use(database, "written", error)


def _fail_to_use(database: Path, what: str, error: OSError | sqlite3.Error) -> NoReturn:
    if (full := disk_full(database, error)) is not None:
        fail([full])
    why = getattr(error, "strerror", None) or error
    refuse(
        f"The file {shown_path(token_file(database))} cannot be {what}: {why}.",
        "Check its permissions and those of its folder.",
        code=ErrorCode.UNKNOWN_ERROR,
    )
