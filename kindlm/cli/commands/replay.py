"""`kindlm replay`: run a suite with the answers of a recorded run, without calling anybody."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kindlm.cli.console import make_console, note, or_fail, refuse
from kindlm.cli.ending import ending_at_once
from kindlm.cli.options import (
    CompatOption,
    ConcurrencyOption,
    ConfigOption,
    DatabaseOption,
    GateOption,
    JudgeCostOption,
    KeywordsOption,
    NewRunLabelOption,
    NoProgressOption,
    QuietOption,
    RepeatOption,
    ReporterOption,
    ReportFileOption,
    RunVerboseOption,
    SuiteTextOption,
    TagsOption,
    TargetsOption,
    TestOptions,
    TestsOption,
    with_options,
)
from kindlm.garbage import put_off

if TYPE_CHECKING:
    from kindlm.history.source_runs import SourceRun
    from kindlm.plan import Selection
    from kindlm.recording.request import RunRequest


class Judges(StrEnum):
    """Who answers the questions to judges."""

    RECORDED = "recorded"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of `kindlm replay`, as typed."""

    paths: Annotated[
        tuple[Path, ...],
        typer.Argument(
            metavar="PATH",
            help="Files, folders or pack:NAME. Default: the files of the run.",
        ),
    ] = ()
    run: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="The run whose answers are given. Default: the newest live one that finished.",
        ),
    ] = None
    config: ConfigOption = None
    judge: Annotated[
        Judges,
        typer.Option("--judge", help="live: ask judges new questions. recorded: ask nobody."),
    ] = Judges.RECORDED
    masks_times: Annotated[
        bool,
        typer.Option(
            "--mask-times",
            help="Ignore dates, times and UUIDs in requests of agents behind the gateway.",
        ),
    ] = False
    suite: SuiteTextOption = None
    tests: TestsOption = ()
    tags: TagsOption = ()
    models: TargetsOption = ()
    keywords: KeywordsOption = None
    repeat: RepeatOption = None
    gate: GateOption = None
    compat: CompatOption = None
    concurrency: ConcurrencyOption = None
    max_cost_usd: JudgeCostOption = None
    reporters: ReporterOption = ()
    output: ReportFileOption = None
    label: NewRunLabelOption = None
    database: DatabaseOption = None
    verbose: RunVerboseOption = False
    quiet: QuietOption = False
    no_progress: NoProgressOption = False


@with_options
def replay_command(options: ReplayOptions) -> int:
    """Run tests with recorded model answers: no key, no cost."""
    # Without a file, it is the files and tests that the run selected, and new tests in them.
    asks_judges = options.judge is Judges.LIVE
    return _replay(options.run, TestOptions.of(options), asks_judges, options.masks_times)


def _replay(wanted: str | None, options: TestOptions, asks_judges: bool, masks_times: bool) -> int:
    """Run suites with the answers of a recorded run; report the new run, return the exit code."""
    with ending_at_once(), put_off():
        from kindlm.cli.commands.rescoring import as_judged, load_again
        from kindlm.cli.history import named_run, open_history, project_here
        from kindlm.cli.reporters import parse_reporters, spare
        from kindlm.cli.run_options import make_request
        from kindlm.cli.run_recording import record_and_report, tell_loaded
        from kindlm.history.recorded_attempts import targets_behind_gateway
        from kindlm.history.source_runs import read_source
        from kindlm.plan import make_plan
        from kindlm.recording.history_file import new_run_id
        from kindlm.recording.loading import default_paths
        from kindlm.recording.request import Derived

    console = make_console()
    reporters = or_fail(parse_reporters(options.reporters, options.output))
    project = project_here(options.database)
    with open_history(options.database) as db:
        run = or_fail(named_run(db, None if wanted == "latest" else wanted, None))
        source = or_fail(read_source(db, run))
        behind_gateway = targets_behind_gateway(db, run)
    options = as_judged(options, source)
    names_files = bool(options.paths)
    if not names_files:
        if source.mode == "imported" or not source.paths:
            paths = or_fail(default_paths(Path()))
        else:
            paths = tuple(project.root / path for path in source.paths)
        options = replace(options, paths=paths)
    loaded = or_fail(load_again(source, project, options))
    or_fail(spare(reporters, project.database, loaded.files, loaded.referenced))
    tell_loaded(loaded, options, console)
    request = or_fail(make_request(loaded, project, options, console))
    if not names_files:
        request = replace(request, selection=_as_selected(request, source))
    plan = make_plan(request.suites, request.selection)
    if request.suites and len(plan) == 0:
        refuse(
            "Nothing was tested: no test fits the selection.",
            "Loosen -k, --suite, --test, --tags or --model. Or name a file: without one, kindlm"
            " replays only the tests that the run selected.",
        )
    if options.warnings:
        called = "judges are asked what is new to them" if asks_judges else "no provider is called"
        note(f"Everything is answered as in run {run}; {called}.", console)
        agents = sorted(
            {
                agent.id
                for each in plan
                if each.target in behind_gateway
                and (agent := each.case.agent or each.suite.suite.agents.get(each.target))
                and agent.gateway
            }
        )
        if agents:
            note(
                "These agents run now, with all their tools, and only their models answer as"
                f" recorded: {', '.join(agents)}.",
                console,
            )
    derived = Derived("replayed", run, asks_judges, masks_times=masks_times)
    request = replace(request, derived=derived)
    return record_and_report(request, new_run_id(), reporters, options, console)


def _as_selected(request: RunRequest, source: SourceRun) -> Selection:
    """Return the selection without the tests that the run left out; those that are new stay."""
    left_out = {
        (suite.project, suite.name, *test)
        for suite in source.suites
        for test, found in suite.tests.items()
        if not found.selected
    }
    only = frozenset(
        (suite.name, case.name, target)
        for suite in request.suites
        for case in suite.cases
        for target in case.targets
        if (suite.project, suite.name, case.name, target) not in left_out
    )
    return replace(request.selection, only=only)
