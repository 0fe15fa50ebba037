"""`kindlm pull`: fetch runs from a history server."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kindlm.bounds import MAX_LISTED_RUNS
from kindlm.cli.console import fail, note, or_fail, refuse, show
from kindlm.cli.history import merged_besides, project_here
from kindlm.cli.options import DATABASE, INSECURE, SERVER, argument, option
from kindlm.errors import Err, KindlmError, Ok, Result, misuse, not_there
from kindlm.wording import count, first_of, printable

if TYPE_CHECKING:
    from kindlm.team.client import HistoryClient
    from kindlm.team.protocol import PushAnswer

_SHOWN = 3


def pull_command(
    runs: list[str] | None = argument(
        "RUN", "Ids of runs on the server, or their first characters.", default=None
    ),
    branch: str | None = option("--branch NAME", "The newest runs of a git branch instead."),
    group: str | None = option("--group ID", "All shards of a group instead."),
    limit: int = option(
        "--limit N", "How many runs of the branch.", default=1, min=1, max=MAX_LISTED_RUNS
    ),
    of_project: str | None = option("--project NAME", "Only runs of this project."),
    url: str | None = SERVER,
    insecure: bool = INSECURE,
    db: Path | None = DATABASE,
) -> None:
    """Pull runs from a history server.

    Labels, reviews and baselines are pulled, too. It is safe to repeat.
    """
    from kindlm.cli.history_server import history_server, upload_now

    if [bool(runs), branch is not None, group is not None].count(True) != 1:
        hint = "kindlm pull RUN, kindlm pull --branch main, or kindlm pull --group nightly-42"
        refuse("Name runs, a branch or a group.", hint)
    project = project_here(db)
    now = upload_now(project.root)
    failed: list[KindlmError] = []
    pulled: list[str] = []
    with history_server(url, now.url if now else None, project.root, insecure=insecure) as client:
        most = limit if branch else MAX_LISTED_RUNS
        wanted = runs or [
            row.run
            for row in or_fail(client.runs(most, project=of_project, branch=branch, group=group))
            if group in (None, row.group)
        ]
        if not wanted:
            what = f"The server has no run of {branch or group!r} that this token may read."
            hint = "Push one with kindlm push, or use a token for its project."
            fail([not_there(what, hint)])
        for named in wanted:
            run, answer = _pulled(client, project.database, named, of_project)
            if isinstance(answer, Err):
                failed.append(answer.error)
                continue
            added, besides = count(answer.value.added, "event"), merged_besides(answer.value.known)
            note(f"{printable(run)}: {added} pulled{besides}.")
            pulled.append(run)
    for name in [group] if group and pulled else pulled[:_SHOWN]:
        note(f"See it with: kindlm show {shlex.quote(name)}")
    if failed:
        show(failed)
        raise typer.Exit(1)


def _pulled(
    client: HistoryClient, database: Path, named: str, of_project: str | None
) -> tuple[str, Result[PushAnswer]]:
    """Pull a run by its id, or by the beginning of its id; return the id, too."""
    from kindlm.team.pulling import pull_run

    answer = pull_run(client, database, named)
    if isinstance(answer, Ok) or answer.error.details.get("status") != 404:
        return named, answer
    listed = client.runs(MAX_LISTED_RUNS, project=of_project, run=named)
    if isinstance(listed, Err):
        return named, listed
    starting = [row.run for row in listed.value if named and row.run.startswith(named)]
    if len(starting) == 1:
        return starting[0], pull_run(client, database, starting[0])
    if starting:
        message = f"{named!r} matches several runs of the server: {first_of(starting, _SHOWN)}."
        answer = Err(misuse(message, "Type more characters of the run's id."))
    else:
        hint = "Name a run by its id, or use --branch or --group."
        answer = Err(replace(answer.error, hint=f"{hint} The token may be for another project."))
    return named, answer
