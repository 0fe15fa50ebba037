"""`kindlm login`, `kindlm push` and `kindlm pull`: exchange runs with a history server."""

from __future__ import annotations

import getpass
import os
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import cache, partial
from pathlib import Path

import typer

from kindlm.cli.console import fail, note, or_fail, refuse, show, warn
from kindlm.cli.history import (
    commit_named,
    db_option,
    existing_history,
    open_history,
    project_here,
    taken_besides,
)
from kindlm.cli.options import DATABASE, INSECURE, RUN_NAMES, SERVER, TEXTS, argument, option
from kindlm.errors import Err, KindlmError, not_there
from kindlm.wording import count, printable

_EVERY_S = 2.0

_SHOWN = 3

_LISTED = 1_000
"""Runs that a server lists at once: the newest."""


def login_command(
    url: str = option("--url URL", "Address of the history server.", default=...),
    insecure: bool = INSECURE,
) -> None:
    """Save the token of a history server. Reads it from the terminal or from stdin."""
    from kindlm.team.client import HistoryClient
    from kindlm.team.credentials import checked_login, parse_address, save_token

    address = or_fail(parse_address(url))
    if sys.stdin.isatty():
        token = getpass.getpass(f"Token for {address.origin}: ", sys.stderr)
    else:
        token = sys.stdin.readline(1_000)
    login = or_fail(checked_login(address, token.strip(), insecure=insecure))
    with closing(HistoryClient(login.address.base, login.token, patience_s=0)) as client:
        or_fail(client.heads(["journal/0"]))
    path = or_fail(save_token(login, os.environ, insecure=insecure))
    note(f"The token for {address.origin} is saved in {path}.")


def push_command(
    runs: list[str] | None = argument(
        "RUN", f"{RUN_NAMES} Or a group of shards. Default: all.", default=None
    ),
    url: str | None = SERVER,
    texts: bool = TEXTS,
    insecure: bool = INSECURE,
    db: Path | None = DATABASE,
) -> None:
    """Send recorded runs to a history server, with labels, reviews and baselines. Safe to repeat.

    Content stays here unless `upload.includeArtifacts` or --texts sends it.
    """
    from kindlm.cli.history_server import REDACTS, configured_upload, history_server, upload_now
    from kindlm.history.run_names import find_run_or_group
    from kindlm.team.pushing import Push
    from kindlm.team.withholding import recorded_uploads

    project = existing_history(db)
    now = configured_upload(project.root)
    with open_history(db) as reader:
        wanted = None
        if runs:
            sides = [or_fail(find_run_or_group(reader, run, commit_named)) for run in runs]
            named = ([side] if isinstance(side, str) else side.runs for side in sides)
            wanted = [run for each in named for run in each]
        configured = now.url if now is not None else None
        if configured is None and wanted:
            recorded = recorded_uploads(reader, wanted)
            configured = next((each.url for each in recorded if each and each.url), None)
        with history_server(url, configured, project.root, insecure=insecure) as client:
            push = Push(
                client,
                reader,
                texts,
                also=() if now is None else [now],
                now=cache(partial(upload_now, project.root)),
                tell=_now_and_then(note),
            )
            pushed = or_fail(push.runs(wanted, again=texts and wanted is not None))
    besides = taken_besides(pushed.known, pushed.filled)
    note(f"{count(pushed.added, 'event')} pushed to {client.base}{besides}.")
    if pushed.withheld and texts:
        note(
            "Content stayed here: settings of its suites were erased, and their files are not"
            " here to say what upload.redactPatterns match."
        )
    elif pushed.withheld:
        again = " ".join(map(shlex.quote, runs or ["RUN"])) + f" --texts{db_option(db)}"
        note(f"Content stayed here. To send it, too: kindlm push {again}")
    if pushed.redacts:
        note(REDACTS)
    if pushed.too_large:
        warn(f"{count(pushed.too_large, 'text')} stayed here: no server takes an event so large.")
    if pushed.failed:
        show(pushed.failed.values())
        raise typer.Exit(1)


def _now_and_then(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that passes on a line if some time has passed since the last one."""
    said_at = time.monotonic()

    def maybe(line: str) -> None:
        nonlocal said_at
        if time.monotonic() - said_at > _EVERY_S:
            said_at = time.monotonic()
            tell(line)

    return maybe


def pull_command(
    runs: list[str] | None = argument("RUN", "Ids of runs on the server.", default=None),
    branch: str | None = option("--branch NAME", "The newest runs of a git branch instead."),
    group: str | None = option("--group ID", "All shards of a group instead."),
    limit: int = option("--limit N", "How many runs of the branch.", default=1, min=1, max=_LISTED),
    of_project: str | None = option("--project NAME", "Only runs of this project."),
    url: str | None = SERVER,
    insecure: bool = INSECURE,
    db: Path | None = DATABASE,
) -> None:
    """Fetch runs from a history server, with labels, reviews and baselines. Safe to repeat."""
    from kindlm.cli.history_server import configured_upload, history_server
    from kindlm.team.pulling import pull_run

    if [bool(runs), branch is not None, group is not None].count(True) != 1:
        hint = "kindlm pull RUN, kindlm pull --branch main, or kindlm pull --group nightly-42"
        refuse("Name runs, a branch or a group.", hint)
    project = project_here(db)
    now = configured_upload(project.root)
    failed: list[KindlmError] = []
    pulled: list[str] = []
    with history_server(url, now.url if now else None, project.root, insecure=insecure) as client:
        wanted = runs or [
            row.run
            for row in or_fail(client.runs(of_project, branch, limit if branch else _LISTED))
            if group in (None, row.group)
        ]
        if not wanted:
            what = f"The server has no run of {branch or group!r} that this token may read."
            hint = "Push one: kindlm push. Or use a token that is for its project."
            fail([not_there(what, hint)])
        for run in wanted:
            answer = pull_run(client, project.database, run)
            if isinstance(answer, Err):
                failed.append(answer.error)
                continue
            added, besides = count(answer.value.added, "event"), taken_besides(answer.value.known)
            note(f"{printable(run)}: {added} pulled{besides}.")
            pulled.append(run)
    for name in [group] if group and pulled else pulled[:_SHOWN]:
        note(f"See it with: kindlm show {shlex.quote(name)}{db_option(db)}")
    if failed:
        show(failed)
        raise typer.Exit(1)
