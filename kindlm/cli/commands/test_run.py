"""Loads, selects, runs and reports tests: the work of `kindlm test`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import typer

from kindlm.cli.console import fail, note, or_fail, refuse, show, warn
from kindlm.cli.ending import NOTHING_RUN
from kindlm.cli.history import open_history, project_here, warn_of_other_commit
from kindlm.cli.options import TestOptions, refuse_together
from kindlm.cli.reporters import configured_reporters, parse_reporters
from kindlm.cli.run_options import NOT_RESUMED, as_recorded, load_tests, make_request, wants_push
from kindlm.cli.run_recording import Requested, refuse_unwritten, run_elsewhere
from kindlm.cli.server_environ import SUITES, server_environ, suites_hash
from kindlm.dataclass import replace
from kindlm.errors import Err, misuse
from kindlm.guard import guard
from kindlm.history.groups import Group, find_group, shards_of
from kindlm.history.runs import RunFilter, held_lock, runs
from kindlm.plan import make_plan
from kindlm.providers.provider_registry import check_settings
from kindlm.recording.history_file import new_run_id
from kindlm.recording.loading import Loaded
from kindlm.recording.project import Project, default_paths, paths_from
from kindlm.recording.request import RunRequest
from kindlm.recording.resumption import (
    Unfinished,
    find_unfinished,
    read_unfinished,
    resumed,
    started_by,
)
from kindlm.reports.report_registry import Reporter
from kindlm_store import LockHeldError, holder


def run_tests(options: TestOptions) -> int:
    """Run tests with the options and return the exit code."""
    reporters = parse_reporters(options.reporters, options.output)
    _check_options(options)
    project = project_here(options.database)
    # Options replace the configured reports.
    if not (options.reporters or options.output or options.dry_run):
        reporters = [*reporters, *or_fail(configured_reporters(project.root))]
    group, unfinished = None, None
    if options.resume is not None:
        group, unfinished = _to_resume(options, options.resume, project)
        options = as_recorded(options, unfinished, project.root)
    if group is not None:
        unfinished = None
        options = replace(options, shard=None, workers=options.workers or "1")
    asked_paths = options.paths
    if not asked_paths:
        options = replace(options, paths=or_fail(default_paths(Path())))
    loaded = load_tests(options, project, reporters)
    _check_documents(reporters, options, project, loaded)
    if server_environ().get(SUITES) not in (None, suites_hash(loaded.suites)):
        refuse(
            "The suites have changed since this run began.",
            "Undo the changes and finish the group with --resume GROUP, or run the tests anew.",
        )
    request = make_request(loaded, project, options, unfinished)
    requested = Requested(request, options, reporters)
    if unfinished is not None:
        if unfinished.is_finished:
            return requested.report(unfinished.run)
        request = or_fail(resumed(request, unfinished, force=options.force_resume))
        return _record(replace(requested, request=request), unfinished.run)
    if request.suites and len(make_plan(request.suites, request.selection)) == 0:
        _refuse_nothing(request, asked_paths)
    if options.dry_run:
        return _show_plan(requested)
    if group is not None or options.workers is not None:
        from kindlm.cli.commands.test_workers import test_on_workers

        return test_on_workers(requested, loaded, group)
    if options.shard and request.group is None and options.warnings:
        note("Without --run-group, this shard cannot be combined with the others.")
    return _record(requested, new_run_id())


def _record(requested: Requested, run: str) -> int:
    guard.set_run(run)
    beside = None
    if wants_push(requested.request, requested.options):
        from kindlm.cli.history_server import live_push

        beside = live_push(requested.request, run, requested.options)
    return requested.record(run, beside)


def _check_options(options: TestOptions) -> None:
    # The coordinator of a resumed group passes --force-resume also to workers with new shards.
    if options.force_resume and options.resume is None and "KINDLM_LEASE" not in server_environ():
        refuse("--force-resume requires --resume.", "Write which run: --resume RUN")
    if options.max_cost_usd == 0 and not (options.cache or options.dry_run):
        refuse(
            "--max-cost 0 allows no call at all.",
            "Write an amount above 0, or leave it out; to see what a run may cost: --dry-run",
        )
    if options.texts and not options.push:
        refuse("--texts requires --push.", "Add --push.")
    if options.dry_run:
        refuse_together("--dry-run", options, "reporters", "output")


def _refuse_nothing(request: RunRequest, paths: Sequence[Path]) -> NoReturn:
    why = "no test matches the selection"
    hint = "Loosen -k, --suite, --test, --tags, --model, --shard or --failed; kindlm list shows the"
    hint += " tests."
    if not any(suite.cases for suite in request.suites):
        why = f"there are no tests in {', '.join(suite.path for suite in request.suites)}"
        hint = (
            "Write one: a function test_… under @scenario. A file that skips itself has no tests."
        )
    elif request.selection.only == frozenset():
        why = "no test is known to have failed when it last ran"
        hint = f"Run all of them: {shlex.join(['kindlm', 'test', *map(str, paths)])}"
    show([misuse(f"Nothing was tested: {why}.", hint)])
    raise typer.Exit(NOTHING_RUN)


def _check_documents(
    reporters: Sequence[Reporter], options: TestOptions, project: Project, loaded: Loaded
) -> None:
    """End the command if a compliance report cannot be made, or would overwrite an input."""
    if options.compliance or any(suite.has_document for suite in loaded.suites):
        from kindlm.cli.compliance import check_folders, check_pdf

        check_folders(loaded.suites, project.root)
        if options.pdf is not None:
            check_pdf(options.pdf, reporters, project.database, loaded.files, loaded.referenced)
    elif options.pdf is not None:
        refuse(
            "--pdf requires a compliance report.",
            "Add --compliance, or set compliance.enabled in a suite.",
        )


def _to_resume(
    options: TestOptions, name: str, project: Project
) -> tuple[Group | None, Unfinished]:
    """Return the group of shards to resume with one of its runs, or no group and the run to resume.

    With `--workers`, the name of a shard stands for its group.
    """
    refuse_together("--resume", options, *NOT_RESUMED)
    with open_history(options.database) as reader:
        database = project.database
        shards = shards_of(reader, name)
        if not shards and options.workers is not None:
            run = next(runs(reader, RunFilter(ids=[or_fail(find_unfinished(reader, name))])))
            if run.group_id is None:
                refuse(
                    f"Run {run.id} is not one of several shards: workers cannot share it.",
                    f"Resume it without --workers: kindlm test --resume {run.id}",
                )
            name, shards = run.group_id, shards_of(reader, run.group_id)
        if shards:
            group = or_fail(find_group(reader, name, shards))
            if options.warnings:
                warn_of_other_commit(group.shards[0], project.root)
            unfinished = read_unfinished(reader, group.runs[0])
            if (runner := unfinished.options.runner) is not None:
                or_fail(started_by(runner, f"Group {name}"))
            for option in ("cache", "failed"):
                if getattr(unfinished.options, option):
                    refuse(
                        f"Group {name} ran with --{option}, so workers cannot finish it.",
                        "Finish each shard by itself: kindlm test --resume RUN. Run a missing one"
                        " with the same options.",
                    )
            for shard in group.shards:
                if shard.state != "finished":
                    refuse_unwritten(database, shard.id, reader)
            return group, unfinished
        paths = paths_from(project.root, options.paths)
        found = or_fail(find_unfinished(reader, name, paths=paths))
        if (lock := held_lock(reader, found)) is not None:
            fail([run_elsewhere(found, LockHeldError(lock, holder(database, lock)))])
        refuse_unwritten(database, found, reader)
        # A worker's coordinator has warned already.
        if options.warnings and "KINDLM_LEASE" not in server_environ():
            warn_of_other_commit(next(runs(reader, RunFilter(ids=[found]))), project.root)
        return None, read_unfinished(reader, found)


def _show_plan(requested: Requested) -> int:
    """Show what would run; return 1 if the run would fail, since a file or a test has a fault."""
    request = requested.request
    plan = make_plan(request.suites, request.selection)
    from kindlm.cli.commands.test_dry_run import write_plan

    write_plan(plan, sys.stdout, requested.report_options())
    lacking = {
        access.error.message: access.error.hint
        for suite in request.suites
        for provider in suite.providers.values()
        if "{{" not in (provider.base_url or "")  # a port of a program that only a run starts
        and isinstance(access := check_settings(provider, request.environ), Err)
    }
    for message, hint in lacking.items():
        warn(message, hint)
    has_faults = any(
        case.selected and case.case.fault is not None and not case.case.skip
        for suite in plan.suites
        for case in suite.cases
    )
    return 1 if request.skipped or has_faults else 0
