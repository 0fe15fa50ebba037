"""Derives runs from a recorded run: the work of `kindlm rescore` and `kindlm replay`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import typer

from kindlm.cli.commands.replay import ReplayOptions
from kindlm.cli.console import fail, note, or_fail, refuse, warn
from kindlm.cli.history import finished_run, open_history, open_recorded, project_here
from kindlm.cli.options import TestOptions, parse_since
from kindlm.cli.reporters import parse_reporters
from kindlm.cli.run_options import as_recorded, load_tests, make_request
from kindlm.cli.run_recording import Requested, record_run, refuse_unwritten
from kindlm.dataclass import replace
from kindlm.errors import not_there
from kindlm.events.run import RunOptions
from kindlm.history.replayed_answers import is_as_recorded
from kindlm.history.run_names import find_run
from kindlm.history.run_view import RunView
from kindlm.history.runs import RunFilter, runs
from kindlm.history.source_runs import SourceRun, SourceTest, read_source
from kindlm.money import exceeds
from kindlm.plan import QualifiedName, Selection, make_plan, name_of
from kindlm.recording.history_file import new_run_id
from kindlm.recording.loading import Loaded
from kindlm.recording.project import Project, default_paths, paths_from
from kindlm.recording.request import Derived, RunRequest
from kindlm.recording.resumption import find_unfinished, read_unfinished, resumed
from kindlm.reports.report_registry import Reporter
from kindlm.suite import Case, Suite
from kindlm.transcript import Message, Role
from kindlm.wording import count

_Options = TypeVar("_Options", bound=TestOptions)


def rescore(wanted: str | None, options: TestOptions) -> int:
    """Rescore one run, as a new run; report it and return the exit code.

    `wanted` names the run, by default the newest finished one. The suites are those in the files of
    the run, or in the files of the options.
    """
    reporters = parse_reporters(options.reporters, options.output)
    project = project_here(options.database)
    with open_history(options.database) as db:
        run = finished_run(db, wanted, options.suite)
        source = or_fail(read_source(db, run, options.suite))
    if not options.paths and source.info.mode == "imported":
        names = ", ".join(repr(suite.name) for suite in source.suites)
        refuse(
            f"Run {run} was imported: no file here says what its suite {names} expects.",
            "Check it with a suite of that name, with tests and targets of the same names: kindlm"
            f" rescore {run} -c FILE",
        )
    options = _with_compat_of(options, source)
    request, noted = _rescoring(source, project, options, reporters)
    if options.warnings:
        note(noted)
    return Requested(request, options, reporters).record(new_run_id())


def _with_compat_of(options: _Options, source: SourceRun) -> _Options:
    """Return the options with the `--compat` of the source run, unless they have one."""
    if options.compat is not None or source.compat is None:
        return options
    return replace(options, compat="evalview" if source.compat == "evalview" else "none")


def _load_again(
    source: SourceRun, project: Project, options: TestOptions, reporters: Sequence[Reporter]
) -> Loaded:
    """Load the suites in the options, by default those of a run."""
    paths = options.paths or tuple(
        dict.fromkeys(project.root / suite.path for suite in source.suites)
    )
    return load_tests(replace(options, paths=paths), project, reporters, is_run=False)


def resume_rescoring(wanted: str, options: TestOptions) -> int:
    """Finish an interrupted rescoring with its files and suite; report it, return the exit code."""
    reporters = parse_reporters(options.reporters, options.output)
    project = project_here(options.database)
    with open_history(options.database) as db:
        unfinished = read_unfinished(db, or_fail(find_unfinished(db, wanted, "rescored")))
        refuse_unwritten(project.database, unfinished.run, db)
        derived_from = or_fail(find_run(db, RunView(db, unfinished.run).info.source_run or ""))
        options = as_recorded(options, unfinished, project.root)
        source = or_fail(read_source(db, derived_from, options.suite))
    request, _ = _rescoring(source, project, options, reporters)
    request = or_fail(resumed(request, unfinished, force=False))
    return Requested(request, options, reporters).record(unfinished.run)


def _rescoring(
    source: SourceRun, project: Project, options: TestOptions, reporters: Sequence[Reporter] = ()
) -> tuple[RunRequest, str]:
    """Return the request of the new run, and a note on how its tests differ from the recorded ones.

    The command ends if no test can be rescored.
    """
    loaded = _load_again(source, project, options, reporters)
    request = make_request(loaded, project, replace(options, suite=None))
    ran = {(suite.project, suite.name) for suite in source.suites}
    suites = [suite for suite in request.suites if (suite.project, suite.name) in ran]
    recorded = source.tests
    then = {test for test, found in recorded.items() if found.selected}
    defined = {
        name_of(now, case, target): (now, case) for now in suites for case, target in _tests_of(now)
    }
    repeats = dict[QualifiedName, Sequence[int]]()
    for test, (now, case) in defined.items():
        planned: Sequence[int] = (1,)  # of a new test
        if (known := recorded.get(test)) is not None:
            planned = known.planned[:1] if case.skip else known.planned
        if planned and (now.path, case.name) not in loaded.unnamed:
            repeats[test] = planned
    only = repeats.keys()
    if not only & then:
        refuse(
            f"Nothing of run {source.info.id} can be checked again: none of its tests is defined"
            " any more.",
            "Name the file of its suite: kindlm rescore RUN -c FILE. Suites are the same if their"
            " names and their `project` are.",
        )
    reworded = sum(
        _is_reworded(now, case, recorded)
        for now in suites
        if not now.redact_pii  # recorded messages differ from the sent ones
        for case in now.cases
    )
    never, why_incomplete = _never_ended(source, repeats)
    parts = [f"Checking run {source.info.id} again: {count(len(only & then), 'test')}"]
    if why_incomplete is not None:
        parts.append(why_incomplete)
    if new := len(only - then):
        parts.append(f"{count(new, 'new test')} without a recording")
    if gone := len(then - defined.keys()):
        parts.append(f"{count(gone, 'removed test')} left out")
    if source.unloaded:
        parts.append(f"{count(source.unloaded, 'suite')} that could not be loaded left out")
    if reworded:
        parts.append(
            f"the prompt of {count(reworded, 'test')} has changed since: the recorded answers"
            " are to the earlier prompt"
        )
    files = {file for suite in source.suites for file in (suite.path, *suite.files)}
    again = replace(
        request,
        suites=[_with_repeats(now, repeats) for now in suites],
        skipped=[each for each in loaded.skipped if each.path in files],
        selection=Selection(only=frozenset(only)),
        options=RunOptions(
            paths=paths_from(project.root, loaded.files),
            suite=options.suite,
            concurrency=options.concurrency,
            max_cost_usd=options.max_cost_usd,
            compat=request.options.compat,
        ),
        derived=Derived(
            "rescored", source.info.id, repeats=repeats, never=never, why_incomplete=why_incomplete
        ),
    )
    return again, "; ".join(parts) + "."


def _is_reworded(suite: Suite, case: Case, then: Mapping[QualifiedName, SourceTest]) -> bool:
    prompt = case.prompt
    now = {Role.USER: prompt.user, Role.SYSTEM: prompt.system or ""}
    return any(
        not is_as_recorded(Message(role, now[role], written=now[role]), text)
        for target in case.targets
        if (recorded := then.get(name_of(suite, case, target))) is not None
        for role, text in recorded.first.items()
        if role in now
    )


def _tests_of(suite: Suite) -> Iterator[tuple[Case, str]]:
    """Yield the tests of a suite: each case with each of its targets."""
    for case in suite.cases:
        for target in case.targets:
            yield case, target


def _never_ended(
    source: SourceRun, repeats: Mapping[QualifiedName, Sequence[int]]
) -> tuple[frozenset[tuple[QualifiedName, int]], str | None]:
    """Return the repeats that a stopped run did not finish, and a text about them if any."""
    if source.info.state == "finished":
        return frozenset(), None
    known = [(test, number) for test in repeats for number in repeats[test] if test in source.tests]
    never = frozenset(one for one in known if one[1] not in source.tests[one[0]].ended)
    lacks = f"{len(never):,} of its {len(known):,} executions did not finish"
    why = f"run {source.info.id} was {source.info.state}: {lacks}; finish it first"
    return never, why if never else None


def _with_repeats(suite: Suite, repeats: Mapping[QualifiedName, Sequence[int]]) -> Suite:
    cases = []
    for case in suite.cases:
        planned = (repeats.get(name_of(suite, case, target), ()) for target in case.targets)
        cases.append(replace(case, repeat=max(map(len, planned), default=1) or 1))
    return replace(suite, cases=tuple(cases))


def rescore_all(since: str | None, options: TestOptions) -> int:
    """Rescore all live runs that finished since then; return 1 if one of them does not pass.

    They share the cost limit: once it is spent, no further run is rescored.
    """
    project = project_here(options.database)
    start = None if since is None else parse_since(since)
    with open_history(options.database) as db:
        wanted = RunFilter(completed=True, since=start, tested=options.suite)
        found = [run.id for run in runs(db, wanted)][::-1]  # the oldest first
        sources = [(run, read_source(db, run, options.suite)) for run in found]
    if not sources:
        fail([not_there("No finished run matches.", "All runs: kindlm runs")])
    limit, spent, done = options.max_cost_usd, 0.0, 0
    refused, passed = list[str](), 0
    for run, source in sources:
        if limit is not None:
            if spent and not exceeds(limit, spent):
                warn(
                    f"--max-cost {limit:g} is spent, after ${spent:.4f}:"
                    f" {count(len(sources) - done, 'run')} not rescored.",
                    "Rescore all with a higher limit; recorded answers of judges are used again.",
                )
                break
            options = replace(options, max_cost_usd=limit - spent)
        done += 1
        note(f"{done} of {len(sources)}: run {run}")
        try:
            known = or_fail(source)
            judged = _with_compat_of(replace(options, quiet=True), known)
            request, _ = _rescoring(known, project, judged)
        except typer.Exit:  # its errors were shown
            refused.append(run)
            continue
        new = new_run_id()
        record_run(request, new, progress=options.progress)
        with open_recorded(project.database, new) as view:
            counts = view.summary.executions
            before = "passed" if known.info.passed else "failed"
            sys.stdout.write(
                f"{run} → {new}  {before} → {view.status}  "
                f"{counts.passed:,} of {count(counts.tested, 'execution')} passed\n"
            )
            sys.stdout.flush()
            passed += view.passed
            spent += view.summary.paid.judges_usd or 0.0
            if view.info.ended != "finished":
                break
    left = f", {len(sources) - done:,} left" if done < len(sources) else ""
    named = f" Not rescored: {', '.join(refused)}." if refused else ""
    recorded = count(done - len(refused), "run")
    sys.stdout.write(f"{recorded} rescored{left}: {passed:,} pass now.{named}\n")
    return 0 if passed == len(sources) else 1


def replay(wanted: str | None, options: ReplayOptions) -> int:
    """Run suites with the answers of a recorded run; report the new run, return the exit code.

    Without paths, these are the files and tests that the run selected, and new tests in them.
    """
    asks_judges = options.judge == "live"
    reporters = parse_reporters(options.reporters, options.output)
    project = project_here(options.database)
    with open_history(options.database) as db:
        run = finished_run(db, wanted, None)
        source = or_fail(read_source(db, run))
    options = _with_compat_of(options, source)
    names_files = bool(options.paths)
    if not names_files:
        if source.info.mode == "imported" or not source.paths:
            paths = or_fail(default_paths(Path()))
        else:
            paths = tuple(project.root / path for path in source.paths)
        options = replace(options, paths=paths)
    request = make_request(_load_again(source, project, options, reporters), project, options)
    if not names_files:
        left_out = {test for test, found in source.tests.items() if not found.selected}
        tests = {name_of(suite, *test) for suite in request.suites for test in _tests_of(suite)}
        only = frozenset(tests - left_out)
        request = replace(request, selection=replace(request.selection, only=only))
    plan = make_plan(request.suites, request.selection)
    if request.suites and len(plan) == 0:
        refuse(
            "Nothing was tested: no test matches the selection.",
            "Loosen -k, --suite, --test, --tags or --model. Or name a file: without one, kindlm"
            " replays only the tests that the run selected.",
        )
    if options.warnings:
        called = "judges answer new questions" if asks_judges else "no provider is called"
        note(f"All answers come from run {run}; {called}.")
        agents = (each.case.agent or each.suite.suite.agents.get(each.target) for each in plan)
        if names := sorted({agent.id for agent in agents if agent and agent.gateway}):
            note(
                f"If run {run} has their model calls, these agents run now, with all their tools,"
                f" and only their models answer as recorded: {', '.join(names)}."
            )
    derived = Derived("replayed", run, asks_judges, masks_times=options.masks_times)
    request = replace(request, derived=derived)
    return Requested(request, options, reporters).record(new_run_id())
