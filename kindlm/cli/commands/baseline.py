"""`kindlm baseline`: choose the recorded run that later ones are compared with."""

from __future__ import annotations

from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, ListFormat, VerboseOption

baseline_app = typer.Typer(
    help="Choose the recorded run that later ones are compared with.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

_Run = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="A run's id or its beginning, a label, latest, or a file with its JSON report."
        " Default: the newest run that finished.",
        show_default=False,
    ),
]
_Suite = Annotated[str | None, typer.Option("--suite", "-s", help="Only this suite.")]


@baseline_app.callback()
def _main(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(1)


@baseline_app.command("set")
def set_command(
    run: _Run = None,
    suite: _Suite = None,
    label: Annotated[
        str, typer.Option("--label", help="A name, to keep several.", show_default=False)
    ] = "",
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Make a finished run the baseline of its suites."""
    from kindlm.cli.baselines import set_baseline

    del verbose
    set_baseline(db, run, suite, label)


@baseline_app.command("list")
def list_command(
    suite: _Suite = None,
    form: Annotated[
        ListFormat, typer.Option("--format", help="For people, or for programs.")
    ] = ListFormat.TERMINAL,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """List the baselines that are set."""
    import sys

    from kindlm.cli.baseline_list import baselines_json, baselines_table
    from kindlm.cli.console import note
    from kindlm.cli.history import open_history
    from kindlm.history.baselines import list_baselines

    del verbose
    with open_history(db) as connection:
        found = list_baselines(connection, suite)
    if form is ListFormat.JSON:
        sys.stdout.write(baselines_json(found))
    elif found:
        sys.stdout.write(baselines_table(found))
    else:
        note("No baseline is set. Run: kindlm baseline set")


@baseline_app.command("compare")
def compare_command(
    run: _Run = None,
    suite: _Suite = None,
    label: Annotated[
        str | None,
        typer.Option("--label", help="The baseline of that name. Default: the active one."),
    ] = None,
    form: Annotated[
        ListFormat, typer.Option("--format", help="For people, or for programs.")
    ] = ListFormat.TERMINAL,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Compare a run with the baseline.

    Ends with 1 if a test passes less often than in the baseline, or is not defined any more.
    """
    import sys

    from kindlm.cli.baseline_comparison import compare_with_baseline

    del verbose
    ok = compare_with_baseline(db, run, suite, label, form, sys.stdout)
    raise typer.Exit(0 if ok else 1)


@baseline_app.command("remove")
def remove_command(
    suite: _Suite = None,
    label: Annotated[
        str | None,
        typer.Option("--label", help="The baseline of that name. Default: the active one."),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option("--project", help="Only of this project, if several share a history."),
    ] = None,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Remove the baseline of a suite. The run stays in the history."""
    from kindlm.cli.baselines import remove_baseline

    del verbose
    remove_baseline(db, suite, label, project)
