"""`kindlm replay`: run a suite with the answers of a recorded run, without calling anybody."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.ending import ending_at_once
from kindlm.cli.options import (
    CompatOption,
    ConcurrencyOption,
    ConfigOption,
    DatabaseOption,
    GateOption,
    JudgeCostOption,
    NewRunLabelOption,
    NoProgressOption,
    QuietOption,
    ReporterOption,
    ReportFileOption,
    RunVerboseOption,
    SuiteTextOption,
    TagsOption,
    TargetsOption,
    TestsOption,
    given_paths,
    given_tags,
)
from kindlm.garbage import put_off


class Judges(StrEnum):
    """Who answers the questions to judges."""

    RECORDED = "recorded"
    LIVE = "live"


def replay_command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH",
            help="Files, folders or pack:NAME. Default: what the run tested.",
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="The run whose answers are given. Default: the newest live one that finished.",
        ),
    ] = None,
    config: ConfigOption = None,
    judge: Annotated[
        Judges,
        typer.Option("--judge", help="live: judges are asked what they were not asked then."),
    ] = Judges.RECORDED,
    suite: SuiteTextOption = None,
    test: TestsOption = None,
    tags: TagsOption = None,
    model: TargetsOption = None,
    runs: Annotated[
        int | None, typer.Option("--runs", metavar="N", min=1, help="Repeats of each test.")
    ] = None,
    gate: GateOption = None,
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
    """Run tests with the answers of a recorded run: no key, no network, no cost."""
    with ending_at_once(), put_off():
        from kindlm.cli.replaying import replay
        from kindlm.cli.request import TestOptions

    options = TestOptions(
        paths=given_paths(paths, config),
        suite=suite,
        tests=tuple(test or ()),
        tags=given_tags(tags),
        models=tuple(model or ()),
        repeat=runs,
        gate=gate,
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
    raise typer.Exit(replay(run, options, asks_judges=judge is Judges.LIVE))
