"""`kindlm push`: send recorded runs to a history server."""

from __future__ import annotations

import shlex
import time
from functools import cache, partial
from pathlib import Path

import typer

from kindlm.cli.console import note, or_fail, show
from kindlm.cli.history import commit_named, existing_history, merged_besides, open_history
from kindlm.cli.options import DATABASE, INSECURE, RUN_NAMES, SERVER, TEXTS, argument
from kindlm.wording import count

_EVERY_S = 2.0


def push_command(
    runs: list[str] | None = argument(
        "RUN", f"{RUN_NAMES} Or a group of shards. Default: all.", default=None
    ),
    url: str | None = SERVER,
    texts: bool = TEXTS,
    insecure: bool = INSECURE,
    db: Path | None = DATABASE,
) -> None:
    """Push recorded runs to a history server.

    Labels, reviews and baselines are pushed, too. It is safe to repeat. Content
    stays here unless `upload.includeArtifacts` or --texts sends it.
    """
    from kindlm.cli.history_server import REDACTS, history_server, upload_now
    from kindlm.history.run_names import find_run_or_group
    from kindlm.team.pushing import Push, Pushed

    told_at = time.monotonic()

    def tell(pushed: Pushed) -> None:
        nonlocal told_at
        if time.monotonic() - told_at > _EVERY_S:
            told_at = time.monotonic()
            note(f"{count(pushed.added, 'event')} pushed …")

    project = existing_history(db)
    now = upload_now(project.root)
    with open_history(db) as reader:
        wanted = None
        if runs:
            sides = [or_fail(find_run_or_group(reader, run, commit_named)) for run in runs]
            named = ([side] if isinstance(side, str) else side.runs for side in sides)
            wanted = [run for each in named for run in each]
        configured = now.url if now is not None else None
        with history_server(url, configured, project.root, insecure=insecure) as client:
            push = Push(
                client,
                reader,
                texts,
                also=() if now is None else [now],
                now=cache(partial(upload_now, project.root)),
                on_sent=tell,
            )
            pushed = or_fail(push.runs(wanted, again=texts and wanted is not None))
    besides = merged_besides(pushed.known, pushed.filled)
    note(f"{count(pushed.added, 'event')} pushed to {client.base}{besides}.")
    if texts and wanted is None and pushed.known:
        again = "kindlm push RUN --texts"
        note(f"Content of runs that were there already is sent only by name: {again}")
    if pushed.withheld and texts:
        note(
            "Content stayed here: settings of its suites were erased, and their files are not"
            " here to say what upload.redactPatterns match."
        )
    elif pushed.withheld:
        again = " ".join(map(shlex.quote, runs or ["RUN"])) + " --texts"
        note(f"Content stayed here. To send it, too: kindlm push {again}")
    if pushed.redacts:
        note(REDACTS)
    if pushed.failed:
        show(pushed.failed.values())
        raise typer.Exit(1)
