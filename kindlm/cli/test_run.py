"""What `kindlm test` does with its options: load, select, run, report."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Awaitable, Collection, Iterable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from kindlm.cli.console import fail, make_console, note, set_verbose, show, wants_color, warn
from kindlm.cli.github import tell_github
from kindlm.cli.history import existing_history, fail_to_open, open_history, open_recorded, or_fail
from kindlm.cli.interruption import HeldSignals, stop_on_signals
from kindlm.cli.logs import name_run
from kindlm.cli.progress import ProgressView, make_progress
from kindlm.cli.reporters import (
    Reporter,
    configured_reporters,
    of_project,
    parse_reporters,
    spare,
    write_reports,
)
from kindlm.cli.request import TestOptions, make_request
from kindlm.cli.resumption import as_recorded, no_selection
from kindlm.cli.shown_path import shown_path
from kindlm.cli.test_run_problems import (
    no_report_of_a_plan,
    no_tests,
    not_imported,
    nothing_selected,
    nothing_to_force,
    nothing_to_spend,
    pdf_of_what,
    run_elsewhere,
    writes_lost,
)
from kindlm.config import Diagnostic
from kindlm.engine.attempt import Finished
from kindlm.engine.field_log import FieldLog
from kindlm.engine.stop import Stop, leaving_nothing
from kindlm.errors import Err, KindlmError, Result
from kindlm.guard import guard
from kindlm.history.lost_writes import lost_writes
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.plan import Plan, make_plan
from kindlm.recording.event_files import (
    COULD_NOT_BE_WRITTEN,
    find_unwritten,
    import_command,
    keep_unwritten,
)
from kindlm.recording.loading import Loaded, default_paths, load_paths
from kindlm.recording.log import new_run_id, open_log
from kindlm.recording.project import Project, find_project
from kindlm.recording.request import RunRequest
from kindlm.recording.resumption import Unfinished, find_unfinished, read_unfinished, resumed
from kindlm.recording.secrets import remember_secrets, suite_secrets
from kindlm.recording.session import run_session
from kindlm.reports.registry import ReportOptions
from kindlm.suite import Suite
from kindlm_store import (
    EventLog,
    LockHeldError,
    OpenError,
    Redactor,
    SealedError,
    WriteFailedError,
    holder,
)

_log = FieldLog(__name__)

_FAIL_FAST = "stopped at the first failure (--fail-fast)"


def run_tests(options: TestOptions) -> int:
    """Run tests as the options say and return the exit code.

    Faults of the user end the command through `fail`.
    """
    set_verbose(options.verbose)
    console = make_console()
    reporters = or_fail(parse_reporters(options.reporters, options.output))
    if (misused := _misused(options)) is not None:
        fail([misused], console)
    project = or_fail(find_project(Path.cwd(), database=options.database, environ=os.environ))
    if not (options.reporters or options.output or options.dry_run):
        # What is asked for with options is all that is wanted.
        reporters = [*reporters, *or_fail(configured_reporters(project.root))]
    unfinished = _unfinished(options) if options.resume is not None else None
    if unfinished is not None:
        options = or_fail(as_recorded(options, unfinished, project.root))
    if not options.paths:
        options = replace(options, paths=or_fail(default_paths(Path())))
    loaded = or_fail(
        load_paths(options.paths, project.root, strict=options.strict, compat=options.by_evalview)
    )
    if options.pdf is not None and not (options.compliance or _has_documents(loaded.suites)):
        fail([pdf_of_what()], console)
    or_fail(_check_files(reporters, options, project, loaded))
    unfinished = _begun(options, project, unfinished)
    tell_loaded(loaded, options, console)
    request = or_fail(make_request(loaded, project, options, console, unfinished))
    if unfinished is not None:
        return _go_on(request, unfinished, reporters, options, console)
    if request.suites and len(make_plan(request.suites, request.selection)) == 0:
        has_tests = any(suite.cases for suite in request.suites)
        error = nothing_selected(options.shard) if has_tests else no_tests(request.suites)
        fail([error], console)
    if options.dry_run:
        return _show_plan(request, options, console)
    if options.shard and request.group is None and options.warnings:
        note("No --run-group: this shard can not be put together with the others.", console)
    run = guard.lost.run or new_run_id()
    guard.goes_on(run)
    return record_and_report(request, run, reporters, options, console)


def _go_on(
    request: RunRequest,
    unfinished: Unfinished,
    reporters: Sequence[Reporter],
    options: TestOptions,
    console: Console,
) -> int:
    """Finish a run that was begun, and report it; return the exit code."""
    guard.goes_on(unfinished.run)
    if unfinished.is_finished:
        return report_run(request, unfinished.run, reporters, options, console)
    request = or_fail(resumed(request, unfinished, force=options.force_resume))
    return record_and_report(request, unfinished.run, reporters, options, console)


def _misused(options: TestOptions) -> KindlmError | None:
    """Return what is wrong with options that mean nothing together."""
    if options.force_resume and options.resume is None:
        return nothing_to_force()
    if options.max_cost_usd == 0 and not (options.cache or options.dry_run):
        return nothing_to_spend()
    if options.dry_run and (options.reporters or options.output):
        return no_report_of_a_plan()
    return None


def _check_files(
    reporters: Sequence[Reporter], options: TestOptions, project: Project, loaded: Loaded
) -> Result[None]:
    """Return an error if a report can not be made, or would be written over what has to stay."""
    if options.compliance or _has_documents(loaded.suites):
        from kindlm.cli.compliance import check_folders

        or_fail(check_folders(loaded.suites, project.root))
    spared = spare(reporters, project.database, loaded.files, loaded.referenced)
    if options.pdf is None or isinstance(spared, Err):
        return spared
    from kindlm.cli.compliance import check_pdf

    return check_pdf(options.pdf, reporters, project.database, loaded.files, loaded.referenced)


def record_and_report(
    request: RunRequest,
    run: str,
    reporters: Sequence[Reporter],
    options: TestOptions,
    console: Console,
) -> int:
    """Run what is requested and report it, unless another process does it; return the exit code."""
    # What is planned by now stays until the end: it is never looked through for garbage.
    gc.freeze()
    with HeldSignals() as held:
        try:
            record_run(
                request,
                run,
                console,
                progress=options.progress,
                fail_fast=options.fail_fast,
                held=held,
            )
        except (LockHeldError, SealedError) as error:
            fail([run_elsewhere(run, error)], console)
        return report_run(request, run, reporters, options, console)


def _unfinished(options: TestOptions) -> Unfinished:
    """Return the run that is to be resumed; end the command if that can not be done."""
    assert options.resume is not None
    wrong = no_selection(options)
    if wrong:
        fail([wrong])
    with open_history(options.database) as reader:
        database = existing_history(options.database).database
        found = find_unfinished(reader, options.resume)
        if lost := lost_writes(database):
            if isinstance(found, Err):
                fail([found.error, writes_lost(lost, database)])
            warn(writes_lost(lost, database).message, "What is missing by that is run again.")
        run = or_fail(found)
        held_by = holder(database, f"run/{run}")
        if held_by is not None:
            fail([run_elsewhere(run, LockHeldError(f"run/{run}", held_by))])
        if (file := find_unwritten(database, run, reader)) is not None:
            fail([not_imported(run, file, database)])
        return read_unfinished(reader, run)


def _begun(
    options: TestOptions, project: Project, unfinished: Unfinished | None
) -> Unfinished | None:
    """Return the run to go on with: the one that ended with the process before this one, if any."""
    run = guard.lost.run
    if run is None or not project.database.exists():
        return unfinished
    with open_history(options.database) as reader:
        is_there = reader.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone()
        return read_unfinished(reader, run) if is_there else None


def _show_plan(request: RunRequest, options: TestOptions, console: Console) -> int:
    """Show what would be run; return 1 if some of it could not be, since the run would fail."""
    plan = make_plan(request.suites, request.selection)
    from kindlm.cli.dry_run import write_plan

    write_plan(plan, sys.stdout, _report_options(request, options, console))
    has_faults = any(
        case.selected and case.case.fault is not None and not case.case.skip
        for suite in plan.suites
        for case in suite.cases
    )
    return 1 if request.skipped or has_faults else 0


def record_run(
    request: RunRequest,
    run: str,
    console: Console,
    *,
    progress: bool = True,
    fail_fast: bool = False,
    held: HeldSignals | None = None,
) -> None:
    """Run what is requested and record it; tell what could not be recorded.

    With `fail_fast`, nothing new starts after the first execution that failed or errored. The run
    is interrupted then, not finished: it has no verdict on what it did not run, stands for nothing
    that runs are compared with, and can be resumed. `held` has the signals that come after the run.
    """
    if held is None:
        # What could not be recorded is kept in a file before a signal ends the process.
        with HeldSignals() as held:
            record_run(request, run, console, progress=progress, fail_fast=fail_fast, held=held)
        return
    secret = suite_secrets(request.environ, request.suites)
    name_run(run, secret)
    remember_secrets(secret)
    view = make_progress(console, shown=progress, redact=Redactor(secret))
    try:
        log = open_log(request.database, secret)
    except OpenError as error:
        fail_to_open(error)
    with log:
        try:
            # What an agent in Python prints must not run into a report on standard output.
            with suppress(WriteFailedError), view, redirect_stdout(sys.stderr):
                work = _run(request, run, log, view, console, held, fail_fast=fail_fast)
                asyncio.run(_beating(leaving_nothing(work)))
        finally:
            guard.come_back()
            # However it ended: what was not written must not be lost with the process.
            if log.failure:
                shown = shown_path(request.database)
                keep_unwritten(log, run, shown, lambda error: show([error], console))
        if log.failure:
            return
        for name, problem in log.projection_errors().items():
            warn(f"The read model {name!r} could not be kept: {problem}", "Run: kindlm rebuild")


def report_run(
    request: RunRequest,
    run: str,
    reporters: Sequence[Reporter],
    options: TestOptions,
    console: Console,
) -> int:
    """Write the reports of a recorded run and return its exit code."""
    with open_recorded(request.database, run) as view:
        if view is None:
            return 1
        look = _report_options(request, options, console)
        unwritten = find_unwritten(request.database, run, view.db)
        if unwritten is not None:
            look = replace(look, first=import_command(unwritten, shown_path(request.database)))
            # So says the file; the history itself can not until that is imported.
            view.info = replace(view.info, ended="interrupted", reason=COULD_NOT_BE_WRITTEN)
        errors = write_reports(reporters, view, look)
        show(errors, console)
        tell_github(view, look, os.environ, console)
        errors += _write_compliance(request, view, options, look, console)
        return 0 if view.passed and not errors else 1


def _write_compliance(
    request: RunRequest,
    view: RunView,
    options: TestOptions,
    look: ReportOptions,
    console: Console,
) -> list[KindlmError]:
    """Write the compliance documents that are wanted; return what could not be written."""
    if not (options.compliance or _has_documents(request.suites)):
        return []
    # It takes a template engine, and few runs have it.
    from kindlm.cli.compliance import write_wanted

    return write_wanted(
        request,
        view,
        look,
        console,
        of_all=options.compliance,
        pdf=options.pdf,
        noted=options.warnings,
    )


def _has_documents(suites: Iterable[Suite]) -> bool:
    return any(suite.has_document for suite in suites)


async def _beating(work: Awaitable[None]) -> None:
    with guard.beating():
        await work


async def _run(
    request: RunRequest,
    run: str,
    log: EventLog,
    progress: ProgressView,
    console: Console,
    held: HeldSignals | None,
    *,
    fail_fast: bool,
) -> None:
    stop = Stop()
    _log.info("The run starts", suites=len(request.suites))
    watcher = _Watcher(progress, console, stop, fail_fast)
    with stop_on_signals(stop, lambda line: note(line, console), held):
        await run_session(request, run, log, watcher, stop)
    _log.info("The run ended", status=stop.reason or "complete")


@dataclass(frozen=True, slots=True)
class _Watcher:
    """Shows a run on the terminal, and stops it at the first failure if that was asked for."""

    progress: ProgressView
    console: Console
    stop: Stop
    fail_fast: bool

    def planned(self, plan: Plan, ended: Collection[str]) -> None:
        self.progress.planned(plan, ended)

    def finished(self, finished: Finished) -> None:
        self.progress.finished(finished)
        if self.fail_fast and finished.status in (Status.FAILED, Status.ERRORED):
            self.stop.wind_down(_FAIL_FAST)

    def tell(self, item: KindlmError | Diagnostic) -> None:
        show([item], self.console)


def _report_options(request: RunRequest, options: TestOptions, console: Console) -> ReportOptions:
    look = ReportOptions(
        color=wants_color(sys.stdout),
        width=console.width,
        verbose=options.verbose,
        database=shown_path(request.database),
        named=options.database is not None,
    )
    return of_project(look, request.root)


def tell_loaded(loaded: Loaded, options: TestOptions, console: Console) -> None:
    """Show what is wrong with the files, and which of them hold no tests."""
    if guard.lost.run is not None:
        return  # the process before this one has shown it
    shown = [found for found in loaded.diagnostics if found.severity == "error" or options.warnings]
    show(shown, console)
    if loaded.ignored and options.warnings:
        note(f"Ignored, no tests: {', '.join(map(str, loaded.ignored))}", console)
    is_judged = any(suite.front_end == "evalview" for suite in loaded.suites)
    if options.compat and options.warnings and not is_judged:
        note("--compat judges EvalView test cases, and there are none here.", console)
