"""`kindlm rescore --all`: check many runs again, each as a new run, with one line for each."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from kindlm.cli.console import fail, make_console, note, set_verbose, show
from kindlm.cli.history import fail_to_open, open_history, or_fail
from kindlm.cli.request import TestOptions
from kindlm.cli.rescoring import Rescoring, as_judged, load_again, rescoring_of
from kindlm.cli.run_list import parse_since
from kindlm.cli.test_run import record_run
from kindlm.errors import Err, ErrorCode, KindlmError, Result
from kindlm.history.run_view import RunView
from kindlm.history.source_runs import SourceRun, live_runs, read_source
from kindlm.recording.log import new_run_id
from kindlm.recording.project import Project, find_project
from kindlm.wording import count
from kindlm_store import OpenError, open_reader


@dataclass(frozen=True, slots=True)
class _Ended:
    """What came of rescoring a run: `new` is the run that was recorded, None if none was.

    `stopped` tells that it did not come to its end.
    """

    source: str
    new: str | None = None
    passed: bool = False
    stopped: bool = False
    spent_usd: float = 0.0


def rescore_all(since: str | None, options: TestOptions) -> int:
    """Check all live runs again that finished since then; return 1 if one does not pass now.

    A limit of costs is one for all of them together.
    """
    set_verbose(options.verbose)
    console = make_console()
    project = or_fail(find_project(Path.cwd(), database=options.database, environ=os.environ))
    start = None if since is None else or_fail(parse_since(since, datetime.now(UTC)))
    with open_history(options.database) as db:
        runs = live_runs(db, since=start, suite=options.suite)
        sources = [(run, read_source(db, run, options.suite)) for run in runs]
    if not sources:
        fail([_no_runs()], console)
    ended: list[_Ended] = []
    for number, (run, source) in enumerate(sources, start=1):
        note(f"{number} of {len(sources)}: run {run}", console)
        ended.append(_rescore_one(run, source, project, _with_rest(options, ended), console))
        if ended[-1].stopped:
            break
    sys.stdout.write(_tally(ended, len(sources)))
    return 0 if all(one.passed for one in ended) and len(ended) == len(sources) else 1


def _tally(ended: list[_Ended], wanted: int) -> str:
    recorded = sum(one.new is not None for one in ended)
    passed = sum(one.passed for one in ended)
    left = wanted - len(ended)
    rest = f", {left:,} left" if left else ""
    refused = [one.source for one in ended if one.new is None]
    named = f" Not rescored: {', '.join(refused)}." if refused else ""
    return f"{count(recorded, 'run')} rescored{rest}: {passed:,} pass now.{named}\n"


def _with_rest(options: TestOptions, ended: list[_Ended]) -> TestOptions:
    """Return the options with what is left of the limit of costs."""
    if options.max_cost_usd is None:
        return options
    spent = sum(one.spent_usd for one in ended)
    return replace(options, max_cost_usd=max(0.0, options.max_cost_usd - spent))


def _rescore_one(
    run: str,
    source: Result[SourceRun],
    project: Project,
    options: TestOptions,
    console: Console,
) -> _Ended:
    """Check one of many runs again, and say in a line what came out."""
    if isinstance(source, Err):
        show([source.error], console)
        return _Ended(run)
    rescoring = _request(source.value, project, options, console)
    if isinstance(rescoring, Err):
        show([rescoring.error], console)
        return _Ended(run)
    new = new_run_id()
    record_run(rescoring.value.request, new, console, progress=options.progress)
    return _tell_result(rescoring.value, new, project.database)


def _request(
    source: SourceRun, project: Project, options: TestOptions, console: Console
) -> Result[Rescoring]:
    options = as_judged(options, source)
    loaded = load_again(source, project, options)
    if isinstance(loaded, Err):
        return loaded
    return rescoring_of(source, loaded.value, project, options, console)


def _tell_result(rescoring: Rescoring, new: str, database: Path) -> _Ended:
    try:
        reader = open_reader(database)
    except OpenError as error:
        fail_to_open(error)
    with closing(reader):
        view = RunView(reader, new)
        if not view.is_recorded:
            return _Ended(rescoring.source.id, stopped=True)
        counts = view.summary.executions
        sys.stdout.write(
            f"{rescoring.source.id} → {new}  {_told(rescoring.source)} → {view.status}  "
            f"{counts.passed:,} of {count(counts.tested, 'execution')} passed\n"
        )
        sys.stdout.flush()
        stopped = view.info.ended != "finished"
        spent = view.summary.judge_cost_usd or 0.0
        return _Ended(rescoring.source.id, new, view.passed, stopped, spent)


def _told(source: SourceRun) -> str:
    return "passed" if source.passed else "failed"


def _no_runs() -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        "No finished run is like that.",
        "All runs: kindlm runs",
    )
