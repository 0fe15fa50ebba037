"""`kindlm settle`: repeat what is suspected until the evidence decides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.ending import loading
from kindlm.cli.options import (
    RUN_NAMES,
    ConcurrencyOption,
    DatabaseOption,
    MaxCostOption,
    NoProgressOption,
    VerboseOption,
    with_options,
)
from kindlm.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SettleOptions:
    """The options of `kindlm settle`, as typed.

    `both` is the folder with the suites as BEFORE ran them, if it is repeated, too. `of_before`: in
    that folder, this process adds one round of repeats to BEFORE.
    """

    before: Annotated[
        str | None,
        typer.Argument(
            metavar="BEFORE",
            help=f"{RUN_NAMES} Default: baseline if one is set, else previous.",
            show_default=False,
        ),
    ] = None
    after: Annotated[
        str | None,
        typer.Argument(
            metavar="AFTER",
            help="The run that repeats are added to. Default: latest.",
            show_default=False,
        ),
    ] = None
    tests: Annotated[
        tuple[str, ...],
        typer.Option(
            "--test",
            "-t",
            metavar="PATTERN",
            help="Repeat only tests and suites whose name contains PATTERN. Repeatable.",
        ),
    ] = ()
    both: Annotated[
        Path | None,
        typer.Option(
            "--both",
            metavar="FOLDER",
            exists=True,
            file_okay=False,
            help="Also repeat BEFORE, from this checkout of its suites and agent.",
        ),
    ] = None
    of_before: Annotated[bool, typer.Option("--of-before", hidden=True)] = False
    max_cost_usd: MaxCostOption = None
    max_runs: Annotated[
        int | None,
        typer.Option("--max-runs", metavar="N", min=1, help="Maximum number of repeats in total."),
    ] = None
    concurrency: ConcurrencyOption = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the suspected tests. Calls nothing.")
    ] = False
    database: DatabaseOption = None
    verbose: VerboseOption = False
    no_progress: NoProgressOption = False

    @property
    def grows_both(self) -> bool:
        """Whether repeats are added to both sides."""
        return self.both is not None or self.of_before


@with_options
def settle_command(options: SettleOptions) -> int:
    """Repeat suspected regressions until confirmed or cleared.

    The repeats are added to AFTER. Exits with 1 if a regression is confirmed.
    """
    with loading():
        from kindlm.cli.commands.settle_run import settle_runs

    return settle_runs(options)
