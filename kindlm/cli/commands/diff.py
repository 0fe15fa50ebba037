"""`kindlm diff`: what became of each test between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, DiffFormat, FailOnOption, VerboseOption

_NAMES = (
    "A run's id or its beginning, a label, a group of shards, latest, latest~N, previous, baseline,"
    " or git:REV."
)


def diff_command(
    before: Annotated[
        str | None,
        typer.Argument(metavar="BEFORE", help=f"{_NAMES} Default: previous.", show_default=False),
    ] = None,
    after: Annotated[
        str | None,
        typer.Argument(metavar="AFTER", help="The same. Default: latest.", show_default=False),
    ] = None,
    form: Annotated[
        DiffFormat, typer.Option("--format", help="For whom it is written.")
    ] = DiffFormat.TERMINAL,
    fail_on: Annotated[
        FailOnOption,
        typer.Option(
            "--fail-on",
            help="What ends with 1. By default confirmed regressions and removed tests;"
            " behaviour: tests that do something else, too; any: suspected regressions, too.",
        ),
    ] = FailOnOption.DEFAULT,
    test: Annotated[
        str | None,
        typer.Option("--test", "-t", metavar="PATTERN", help="Only tests or suites named like it."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Default, and -: the terminal."),
    ] = None,
    old: Annotated[str | None, typer.Option("--before", hidden=True)] = None,
    new: Annotated[str | None, typer.Option("--after", hidden=True)] = None,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Compare two runs: which tests got worse, and what changed in behaviour.

    Ends with 1 if a test got worse for certain, or is not defined any more.
    """
    from kindlm.cli.diffing import compare_and_write
    from kindlm.history.diff.evidence_values import FailOn
    from kindlm.history.diff.run_diff import DiffOptions

    options = DiffOptions(FailOn(fail_on.value), test)
    sides = (before if old is None else old, after if new is None else new)
    ok = compare_and_write(db, *sides, form, output, options, verbose=verbose)
    raise typer.Exit(0 if ok else 1)
