"""`kindlm test`: run what the paths hold, record it, report it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kindlm.bounds import MAX_REPEAT
from kindlm.cli.ending import ending_at_once
from kindlm.cli.options import (
    CompatOption,
    ConcurrencyOption,
    ConfigOption,
    DatabaseOption,
    GateOption,
    MaxCostOption,
    NoProgressOption,
    PathsArgument,
    QuietOption,
    ReporterOption,
    ReportFileOption,
    RunVerboseOption,
    StrictOption,
    SuiteTextOption,
    TagsOption,
    TargetsOption,
    TestsOption,
    given_paths,
    given_tags,
)
from kindlm.garbage import put_off


def test_command(
    context: typer.Context,
    paths: PathsArgument = None,
    config: ConfigOption = None,
    suite: SuiteTextOption = None,
    test: TestsOption = None,
    tags: TagsOption = None,
    model: TargetsOption = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only tests that failed when they last ran.")
    ] = False,
    runs: Annotated[
        int | None,
        typer.Option("--runs", metavar="N", min=1, max=MAX_REPEAT, help="Repeats of each test."),
    ] = None,
    gate: GateOption = None,
    concurrency: ConcurrencyOption = None,
    timeout: Annotated[
        int | None,
        typer.Option("--timeout", metavar="MS", min=1, help="Milliseconds for one call."),
    ] = None,
    strict: StrictOption = False,
    compat: CompatOption = None,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Start nothing new after the first failure.")
    ] = False,
    max_cost: MaxCostOption = None,
    max_time: Annotated[
        float | None,
        typer.Option("--max-time", metavar="SECONDS", min=0, help="Stop after this time."),
    ] = None,
    max_rpm: Annotated[
        float | None,
        typer.Option(
            "--max-rpm", metavar="N", min=0.1, help="Calls a minute to each provider at most."
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option("--shard", metavar="I/N", help="Only every N-th test, from the I-th on."),
    ] = None,
    run_group: Annotated[
        str | None,
        typer.Option(
            "--run-group",
            metavar="ID",
            help="What the shards of one run share. Default: the run of the CI service.",
        ),
    ] = None,
    cache: Annotated[
        bool,
        typer.Option(
            "--cache", help="Ask models only what they have not been asked in an earlier run."
        ),
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="[RUN]",
            help="Finish a run that was stopped; by default the latest one.",
        ),
    ] = None,
    force_resume: Annotated[
        bool,
        typer.Option(
            "--force-resume",
            help="Resume although the configuration has changed; its tests must be the same.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and what it may cost; call nothing.")
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Run again whenever a file changes that matters."),
    ] = False,
    reporter: ReporterOption = None,
    output: ReportFileOption = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="NAME", help="A name for this run.")
    ] = None,
    compliance: Annotated[
        bool,
        typer.Option("--compliance", help="Write the compliance report of each suite, too."),
    ] = False,
    pdf: Annotated[
        Path | None,
        typer.Option("--pdf", metavar="FILE", help="Write the compliance report as PDF, too."),
    ] = None,
    db: DatabaseOption = None,
    verbose: RunVerboseOption = False,
    quiet: QuietOption = False,
    no_progress: NoProgressOption = False,
) -> None:
    """Run tests, record everything, judge the gates."""
    with ending_at_once(), put_off():
        from kindlm.cli.commands.test_run import run_tests
        from kindlm.cli.request import TestOptions

    options = TestOptions(
        paths=given_paths(paths, config),
        suite=suite,
        tests=tuple(test or ()),
        tags=given_tags(tags),
        models=tuple(model or ()),
        failed=failed,
        repeat=runs,
        gate=gate,
        concurrency=concurrency,
        timeout_ms=timeout,
        strict=strict,
        compat=compat,
        fail_fast=fail_fast,
        max_cost_usd=max_cost,
        max_time_s=max_time,
        max_rpm=max_rpm,
        cache=cache,
        shard=shard,
        run_group=run_group,
        resume=resume,
        force_resume=force_resume,
        dry_run=dry_run,
        reporters=tuple(reporter or ()),
        output=output,
        label=label,
        compliance=compliance,
        pdf=pdf,
        database=db,
        verbose=verbose,
        progress=not (no_progress or quiet),
        warnings=not quiet,
    )
    if watch or context.info_name == "watch":
        with ending_at_once(), put_off():
            from kindlm.cli.commands.watch import watch_tests

        raise typer.Exit(watch_tests(options, _typed(context)))
    raise typer.Exit(run_tests(options))


def _typed(context: typer.Context) -> list[str]:
    """Return the options and arguments of the command line, without `--watch`, for another one."""
    options: list[str] = []
    arguments: list[str] = []
    for parameter in context.command.params:
        name = parameter.name
        source = context.get_parameter_source(name) if name else None
        if not name or name == "watch" or source is None or source.name != "COMMANDLINE":
            continue
        given = context.params[name]
        values = given if isinstance(given, list | tuple) else [given]
        long = parameter.opts[0]
        if parameter.param_type_name == "argument":
            arguments += map(str, values)
        else:
            options += [long if value is True else f"{long}={value}" for value in values]
    return [*options, "--", *arguments]
