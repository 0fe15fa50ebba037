"""`kindlm settle`: repeat suspected tests until the evidence decides."""

from __future__ import annotations

from pathlib import Path

from kindlm.cli.ending import loading
from kindlm.cli.options import (
    CONCURRENCY,
    DATABASE,
    MAX_COST,
    NO_PROGRESS,
    RUN_NAMES,
    argument,
    command_options,
    flag,
    option,
    with_options,
)


@command_options
class SettleOptions:
    """The options of `kindlm settle`, as typed.

    `--of-before` is for the process that adds repeats to BEFORE in the folder of `--both`.
    """

    before: str | None = argument(
        "BEFORE", f"{RUN_NAMES} Default: baseline if one is set, else previous.", default=None
    )
    after: str | None = argument(
        "AFTER", "The run that repeats are added to. Default: latest.", default=None
    )
    tests: tuple[str, ...] = option(
        "--test -t PATTERN",
        "Repeat only tests and suites whose name contains PATTERN. Repeatable.",
        default=(),
    )
    both: Path | None = option(
        "--both FOLDER",
        "Also repeat BEFORE, from this checkout of its suites and agent.",
        exists=True,
        file_okay=False,
    )
    of_before: bool = flag("--of-before", hidden=True)
    max_cost_usd: float | None = MAX_COST
    max_runs: int | None = option("--max-runs N", "Maximum number of repeats in total.", min=1)
    concurrency: int | None = CONCURRENCY
    dry_run: bool = flag("--dry-run", "Show the suspected tests. Calls nothing.")
    database: Path | None = DATABASE
    no_progress: bool = NO_PROGRESS

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
