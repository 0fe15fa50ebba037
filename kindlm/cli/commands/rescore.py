"""`kindlm rescore`: check recorded conversations again, by the suite as it is now."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.ending import ending_at_once
from kindlm.cli.options import (
    CompatOption,
    ConcurrencyOption,
    DatabaseOption,
    JudgeCostOption,
    NewRunLabelOption,
    NoProgressOption,
    QuietOption,
    ReporterOption,
    ReportFileOption,
    RunVerboseOption,
)
from kindlm.garbage import put_off


def rescore_command(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="A run's id or its beginning, or a label. Default: the newest live one.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="The suite to check by; repeatable. Default: the file of the run.",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All live runs that finished; a new run for each.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", help="With --all, only runs since then: 30d, 12h, 2026-01-31."),
    ] = None,
    suite: Annotated[
        str | None, typer.Option("--suite", "-s", metavar="NAME", help="Only this suite.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="[RUN]",
            help="Finish a rescored run that was stopped; by default the latest one.",
        ),
    ] = None,
    compat: CompatOption = None,
    concurrency: ConcurrencyOption = None,
    max_cost: JudgeCostOption = None,
    reporter: ReporterOption = None,
    output: ReportFileOption = None,
    label: NewRunLabelOption = None,
    db: DatabaseOption = None,
    verbose: RunVerboseOption = False,
    quiet: QuietOption = False,
    no_progress: NoProgressOption = False,
) -> None:
    """Check recorded conversations by the suite as it is now: the tested model is not called."""
    with ending_at_once(), put_off():
        from kindlm.cli.commands.rescoring import (
            contradiction,
            rescore,
            rescore_all,
            resume_rescoring,
        )
        from kindlm.cli.console import fail
        from kindlm.cli.request import TestOptions

    options = TestOptions(
        paths=tuple(config or ()),
        suite=suite,
        compat=compat,
        concurrency=concurrency,
        max_cost_usd=max_cost,
        reporters=tuple(reporter or ()),
        output=output,
        label=label,
        database=db,
        verbose=verbose,
        progress=not (no_progress or quiet),
        warnings=not quiet,
    )
    wrong = contradiction(options, run=run, everything=everything, since=since, resume=resume)
    if wrong is not None:
        fail([wrong])
    if resume is not None:
        raise typer.Exit(resume_rescoring(resume, options))
    raise typer.Exit(rescore_all(since, options) if everything else rescore(run, options))
