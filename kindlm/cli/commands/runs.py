"""`kindlm runs`: the recorded runs, newest first."""

from __future__ import annotations

from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, ListFormat, VerboseOption

__all__ = ["runs_command"]


def runs_command(
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 20,
    suite: Annotated[
        str | None, typer.Option("--suite", "-s", help="Only runs of this suite.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Only runs since then: 30d, 12h, 2w, 2026-01-31."),
    ] = None,
    form: Annotated[
        ListFormat, typer.Option("--format", help="For people, or for programs.")
    ] = ListFormat.TERMINAL,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """List the recorded runs, newest first."""
    import sys
    from datetime import UTC, datetime

    from kindlm.cli.console import note, wants_color
    from kindlm.cli.history import existing_history, open_history, or_fail
    from kindlm.cli.run_list import describe_runs, parse_since, runs_json, runs_table
    from kindlm.history.runs import list_runs
    from kindlm.history.verdicts_now import verdicts_now

    del verbose
    start = None if since is None else or_fail(parse_since(since, datetime.now(UTC)))
    with open_history(db) as connection:
        rows = list_runs(connection, limit=limit, suite=suite, since=start)
        runs = describe_runs(rows, existing_history(db).database, verdicts_now(connection, rows))
    if form is ListFormat.JSON:
        sys.stdout.write(runs_json(runs))
        return
    if not runs:
        note("No run is like that. All runs: kindlm runs")
        return
    sys.stdout.write(runs_table(runs, color=wants_color(sys.stdout)))
