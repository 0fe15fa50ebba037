"""What `kindlm test` does with its options: load, select, run, report."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from kindlm.cli.console import fail, make_console, note, set_verbose, show, wants_color, warn
from kindlm.cli.history import fail_to_open, or_fail
from kindlm.cli.interruption import stop_on_signals
from kindlm.cli.loading import Loaded, default_paths, load_paths
from kindlm.cli.progress import ProgressView, make_progress
from kindlm.cli.project import Project, find_project, run_environment
from kindlm.cli.reporters import Reporter, parse_reporters, write_reports
from kindlm.cli.session import RunRequest, new_run_id, open_log, run_session
from kindlm.engine.runner import Stop
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.run_view import RunView
from kindlm.plan import Selection, make_plan
from kindlm.reports.registry import ReportOptions
from kindlm.suite import Gate, Suite
from kindlm_store import EventLog, OpenError, WriteFailedError, open_reader

__all__ = ["TestOptions", "parse_gate", "record_run", "report_run", "run_tests"]


@dataclass(frozen=True, slots=True)
class TestOptions:
    """The options of the command, as typed."""

    __test__ = False  # not a pytest class

    paths: tuple[Path, ...] = ()
    suite: str | None = None
    test: str | None = None
    tags: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    repeat: int | None = None
    gate: str | None = None
    concurrency: int | None = None
    timeout_ms: int | None = None
    reporters: tuple[str, ...] = ()
    output: Path | None = None
    label: str | None = None
    database: Path | None = None
    verbose: bool = False
    progress: bool = True
    warnings: bool = True


def parse_gate(text: str) -> Result[float]:
    """Return the pass rate that `--gate` means: 0 to 1 is a fraction, above that percent."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    rate = number if number <= 1 else number / 100
    if not 0 <= rate <= 1:
        return Err(
            KindlmError(
                ErrorCode.CONFIG_VALIDATION_ERROR,
                f"--gate {text!r} is no pass rate.",
                "Write percent or a fraction: --gate 95, --gate 0.95",
            )
        )
    return Ok(rate)


def run_tests(options: TestOptions) -> int:
    """Run tests as the options say and return the exit code.

    Faults of the user end the command through `fail`.
    """
    set_verbose(options.verbose)
    console = make_console()
    reporters = or_fail(parse_reporters(options.reporters, options.output))
    project = or_fail(find_project(Path.cwd(), database=options.database, environ=os.environ))
    paths = options.paths or or_fail(default_paths(Path()))
    loaded = or_fail(load_paths(paths, project.root))
    _tell_diagnostics(loaded, options, console)
    if not loaded.suites:
        return 1
    request = or_fail(_request(loaded, project, options, console))
    if len(make_plan(request.suites, request.selection)) == 0:
        fail([_nothing_selected()])
    return _run_and_report(request, reporters, options, console)


def _run_and_report(
    request: RunRequest, reporters: Sequence[Reporter], options: TestOptions, console: Console
) -> int:
    run = new_run_id()
    progress = make_progress(console, shown=options.progress)
    record_run(request, run, progress, console)
    return report_run(request, run, reporters, options, console)


def record_run(request: RunRequest, run: str, progress: ProgressView, console: Console) -> None:
    """Run what is requested and record it; tell what could not be recorded."""
    try:
        log = open_log(request.database, request.suites, request.environ)
    except OpenError as error:
        fail_to_open(error)
    with log:
        try:
            with progress:
                asyncio.run(_run(request, run, log, progress, console))
        except WriteFailedError as error:
            show([_write_failed(error, request.database)], console)
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
    with closing(open_reader(request.database)) as reader:
        view = RunView(reader, run)
        report_options = ReportOptions(
            color=wants_color(sys.stdout),
            width=console.width,
            verbose=options.verbose,
            database=_shown(request.database),
        )
        errors = write_reports(reporters, view, report_options)
        show(errors, console)
        return 0 if view.passed and not errors else 1


async def _run(
    request: RunRequest, run: str, log: EventLog, progress: ProgressView, console: Console
) -> None:
    stop = Stop()
    progress.planned(len(make_plan(request.suites, request.selection)))
    with stop_on_signals(stop, lambda line: note(line, console)):
        await run_session(request, run, log, progress.finished, stop)


def _request(
    loaded: Loaded, project: Project, options: TestOptions, console: Console
) -> Result[RunRequest]:
    suites = loaded.suites
    if options.gate is not None:
        rate = parse_gate(options.gate)
        if isinstance(rate, Err):
            return rate
        note(f"--gate {options.gate}: at least {rate.value:.1%} of executions must pass.", console)
        suites = tuple(_with_pass_rate(suite, rate.value) for suite in suites)
    known = {model for suite in suites for model in suite.models}
    for model in options.models:
        if model not in known:
            return Err(_unknown_model(model, known))
    return Ok(
        RunRequest(
            suites=tuple(_overridden(suite, options) for suite in suites),
            skipped=loaded.skipped,
            selection=Selection(
                suite=options.suite,
                test=options.test,
                tags=options.tags,
                models=options.models,
                repeat=options.repeat,
            ),
            root=project.root,
            database=project.database,
            environ=run_environment([*loaded.folders, project.root], os.environ),
            label=options.label,
        )
    )


def _overridden(suite: Suite, options: TestOptions) -> Suite:
    return replace(
        suite,
        concurrency=options.concurrency or suite.concurrency,
        timeout_ms=options.timeout_ms or suite.timeout_ms,
    )


def _with_pass_rate(suite: Suite, rate: float) -> Suite:
    """Return the suite with a written `passRateMin`, in the place of its own."""
    gate = Gate("passRateMin", rate, written=True)
    others = tuple(other for other in suite.gates if other.name != gate.name)
    return replace(suite, gates=(gate, *others))


def _tell_diagnostics(loaded: Loaded, options: TestOptions, console: Console) -> None:
    shown = [found for found in loaded.diagnostics if found.severity == "error" or options.warnings]
    show(shown, console)


def _shown(path: Path) -> str:
    """Return a path as a user would type it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _nothing_selected() -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        "Nothing was tested: no test fits the selection.",
        "Loosen --suite, --test, --tags or --model; kindlm validate counts the tests of a file.",
    )


def _unknown_model(model: str, known: set[str]) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"No model has the id {model!r}.",
        f"Models are: {', '.join(sorted(known))}",
    )


def _write_failed(error: WriteFailedError, database: Path) -> KindlmError:
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"The history {_shown(database)} could not be written any more: {error}.",
        "Nothing new was started. Make room on the disk and run again.",
    )
