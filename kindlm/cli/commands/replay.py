"""`kindlm replay`: run a suite with the answers of a recorded run, without calling anybody."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.ending import ending_at_once
from kindlm.cli.options import DatabaseOption

__all__ = ["replay_command"]


class Judges(StrEnum):
    """Who answers the questions to judges."""

    RECORDED = "recorded"
    LIVE = "live"


def replay_command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Files or folders. Default: kindlm.yaml, else tests/."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="The run whose answers are given. Default: the newest live one that finished.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE", help="A suite, like PATH.")
    ] = None,
    judge: Annotated[
        Judges,
        typer.Option("--judge", help="live: judges are asked what they were not asked then."),
    ] = Judges.RECORDED,
    suite: Annotated[
        str | None,
        typer.Option("--suite", "-s", metavar="TEXT", help="Only suites whose name has this."),
    ] = None,
    test: Annotated[
        list[str] | None,
        typer.Option(
            "--test",
            "-t",
            metavar="TEXT",
            help="Only tests whose suite, name or file has this; repeatable.",
        ),
    ] = None,
    tags: Annotated[
        str | None,
        typer.Option("--tags", metavar="A,B", help="Only tests with one of these tags."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="ID", help="Only on this model or agent; repeatable."),
    ] = None,
    runs: Annotated[
        int | None, typer.Option("--runs", metavar="N", min=1, help="Repeats of each test.")
    ] = None,
    gate: Annotated[
        str | None,
        typer.Option("--gate", metavar="RATE", help="Least pass rate of a suite: 95 or 0.95."),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", "-j", metavar="N", min=1, help="Executions at once."),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option("--max-cost", metavar="USD", min=0, help="Stop when judges cost more."),
    ] = None,
    reporter: Annotated[
        list[str] | None,
        typer.Option(
            "--reporter",
            metavar="NAME[=FILE]",
            help="terminal, json, junit, markdown, html or sarif; repeatable.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where the report goes."),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="NAME", help="A name for the new run.")
    ] = None,
    db: DatabaseOption = None,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="Show bodies, tries, timing and traces of what failed."),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Neither progress nor warnings.")
    ] = False,
    no_progress: Annotated[
        bool, typer.Option("--no-progress", "-x", help="No progress while it runs.")
    ] = False,
) -> None:
    """Run tests with the answers of a recorded run: no key, no network, no cost."""
    with ending_at_once():
        from kindlm.cli.replaying import replay
        from kindlm.cli.request import TestOptions

    options = TestOptions(
        paths=(*(paths or ()), *((config,) if config else ())),
        suite=suite,
        tests=tuple(test or ()),
        tags=() if tags is None else tuple(tag.strip() for tag in tags.split(",")),
        models=tuple(model or ()),
        repeat=runs,
        gate=gate,
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
