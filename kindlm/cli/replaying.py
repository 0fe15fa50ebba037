"""What `kindlm replay` does: run a suite against what a recorded run was answered."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from kindlm.cli.baselines import named_run
from kindlm.cli.console import fail, make_console, note, set_verbose, show
from kindlm.cli.history import open_history, or_fail
from kindlm.cli.reporters import parse_reporters, spare
from kindlm.cli.request import TestOptions, make_request
from kindlm.cli.rescoring import as_judged, load_again
from kindlm.cli.test_run import record_and_report
from kindlm.errors import ErrorCode, KindlmError
from kindlm.history.source_runs import read_source
from kindlm.plan import make_plan
from kindlm.recording.loading import Loaded, default_paths
from kindlm.recording.project import find_project
from kindlm.recording.request import Derived
from kindlm.recording.session import new_run_id

__all__ = ["replay"]


def replay(wanted: str | None, options: TestOptions, *, asks_judges: bool) -> int:
    """Run suites with the answers of a recorded run; report the new run, return the exit code.

    `wanted` names the run, by default the newest live one that finished. With `asks_judges`, judges
    are asked what they were not asked then.
    """
    set_verbose(options.verbose)
    console = make_console()
    reporters = or_fail(parse_reporters(options.reporters, options.output))
    project = or_fail(find_project(Path.cwd(), database=options.database, environ=os.environ))
    with open_history(options.database) as db:
        run = or_fail(named_run(db, None if wanted == "latest" else wanted, None))
        source = or_fail(read_source(db, run))
    options = as_judged(options, source)
    if not options.paths:
        options = replace(options, paths=or_fail(default_paths(Path())))
    loaded = or_fail(load_again(source, project, options))
    or_fail(spare(reporters, project.database, loaded.files, loaded.referenced))
    _tell_loaded(loaded, options, console)
    request = or_fail(make_request(loaded, project, options, console))
    if request.suites and len(make_plan(request.suites, request.selection)) == 0:
        fail([_nothing_selected()], console)
    if options.warnings:
        called = "judges are asked what is new to them" if asks_judges else "nobody is called"
        note(f"Everything is answered as in run {run}; {called}.", console)
    request = replace(request, derived=Derived("replayed", run, asks_judges))
    return record_and_report(request, new_run_id(), reporters, options, console)


def _tell_loaded(loaded: Loaded, options: TestOptions, console: Console) -> None:
    shown = [found for found in loaded.diagnostics if found.severity == "error" or options.warnings]
    show(shown, console)


def _nothing_selected() -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        "Nothing was tested: no test fits the selection.",
        "Loosen --suite, --test, --tags or --model; kindlm validate counts the tests.",
    )
