"""`kindlm runs`: the recorded runs, newest first, or one test over all of them."""

from __future__ import annotations

from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, ListFormat, VerboseOption


def runs_command(
    test: Annotated[
        str | None,
        typer.Option("--test", "-t", metavar="NAME", help="Show this test over time."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 20,
    suite: Annotated[
        str | None, typer.Option("--suite", "-s", help="Only runs of this suite.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="ID", help="Of a test: only on this target.")
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
    """List the recorded runs, newest first, or show how a test did over time.

    A + behind a commit: there were changes that were not committed.
    """
    from datetime import UTC, datetime

    from kindlm.cli.history import open_history, or_fail
    from kindlm.cli.run_list import parse_since

    del verbose
    if model is not None and test is None:
        from kindlm.cli.console import fail
        from kindlm.cli.reading import misused

        fail([misused("--model goes with --test.", "runs")])
    start = None if since is None else or_fail(parse_since(since, datetime.now(UTC)))
    with open_history(db) as connection:
        if test is None:
            from kindlm.cli.run_list import show_runs
            from kindlm.history.runs import RunFilter

            show_runs(connection, RunFilter(suite=suite, since=start, limit=limit), form)
        else:
            from kindlm.cli.trends import show_trends

            show_trends(
                connection, test, suite=suite, target=model, limit=limit, since=start, form=form
            )
