"""Runs a suite with the answers of a recorded run: the work of `kindlm replay`."""

from __future__ import annotations

from pathlib import Path

from kindlm.cli.commands.replay import ReplayOptions
from kindlm.cli.commands.rescore_run import as_judged, load_again, tests_of
from kindlm.cli.console import note, or_fail, refuse
from kindlm.cli.history import finished_run, open_history, project_here
from kindlm.cli.reporters import parse_reporters, spare
from kindlm.cli.run_options import make_request
from kindlm.cli.run_recording import Requested, show_diagnostics
from kindlm.dataclass import replace
from kindlm.history.recorded_attempts import targets_behind_gateway
from kindlm.history.source_runs import read_source
from kindlm.plan import make_plan, name_of
from kindlm.recording.history_file import new_run_id
from kindlm.recording.project import default_paths
from kindlm.recording.request import Derived


def replay(wanted: str | None, options: ReplayOptions) -> int:
    """Run suites with the answers of a recorded run; report the new run, return the exit code.

    Without paths, these are the files and tests that the run selected, and new tests in them.
    """
    asks_judges = options.judge == "live"
    reporters = parse_reporters(options.reporters, options.output)
    project = project_here(options.database)
    with open_history(options.database) as db:
        run = or_fail(finished_run(db, wanted, None))
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
    loaded = load_again(source, project, options)
    or_fail(spare(reporters, project.database, loaded.files, loaded.referenced))
    show_diagnostics(loaded, options)
    request = make_request(loaded, project, options)
    if not names_files:
        left_out = {test for test, found in source.tests.items() if not found.selected}
        tests = {name_of(suite, *test) for suite in request.suites for test in tests_of(suite)}
        only = frozenset(tests - left_out)
        request = replace(request, selection=replace(request.selection, only=only))
    plan = make_plan(request.suites, request.selection)
    if request.suites and len(plan) == 0:
        refuse(
            "Nothing was tested: no test fits the selection.",
            "Loosen -k, --suite, --test, --tags or --model. Or name a file: without one, kindlm"
            " replays only the tests that the run selected.",
        )
    if options.warnings:
        called = "judges are asked what is new to them" if asks_judges else "no provider is called"
        note(f"Everything is answered as in run {run}; {called}.")
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
                f" recorded: {', '.join(agents)}."
            )
    derived = Derived("replayed", run, asks_judges, masks_times=options.masks_times)
    request = replace(request, derived=derived)
    return Requested(request, options, reporters).record(new_run_id())
