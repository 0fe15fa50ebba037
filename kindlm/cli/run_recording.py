"""Records and reports a requested run, for all commands that make runs.

The first Ctrl-C, SIGTERM or SIGHUP asks the run to stop; the second ends it at once. After the run,
the first signal waits until the report is written.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    closing,
    contextmanager,
    nullcontext,
    redirect_stdout,
    suppress,
)
from dataclasses import field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from kindlm import garbage
from kindlm.cli.console import fail, make_console, note, refuse, show, wants_color, warn
from kindlm.cli.ending import INTERRUPTED, handling
from kindlm.cli.github import annotate_github
from kindlm.cli.history import open_recorded, report_options
from kindlm.cli.logs import name_run
from kindlm.cli.options import TestOptions
from kindlm.cli.progress import kind_of_progress
from kindlm.cli.reporters import write_reports
from kindlm.cli.server_environ import server_environ
from kindlm.dataclass import dataclass, replace
from kindlm.engine import FieldLog
from kindlm.engine.resources import Steering
from kindlm.engine.stop import SIGNAL_NAMES, SteadyLoop, Stop
from kindlm.errors import KindlmError, broken, misuse
from kindlm.guard import guard
from kindlm.history.run_view import RunView
from kindlm.recording.history_file import open_log
from kindlm.recording.request import RunRequest
from kindlm.recording.secrets import remember_secrets
from kindlm.recording.session import run_session
from kindlm.recording.suite_secrets import suite_secrets
from kindlm.recording.unwritten import (
    COULD_NOT_BE_WRITTEN,
    find_unwritten,
    import_command,
    keep_unwritten,
)
from kindlm.reports.report_registry import Reporter, ReportOptions
from kindlm.wording import shown_path
from kindlm_store import LockHeldError, Redactor, SealedError, WriteFailedError

_log = FieldLog(__name__)

Beside = Callable[[Steering], AbstractContextManager[object]]
"""Returns a context that accompanies a run, such as a push, and may steer it. The context begins
before the run, and ends once the run is on disk, before its report."""


@dataclass(frozen=True, slots=True)
class Requested:
    """A run to record, with the options and the reports that the user asked for."""

    request: RunRequest
    options: TestOptions
    reporters: Sequence[Reporter]

    def record(self, run: str, beside: Beside | None = None) -> int:
        """Run and report it; return the exit code. End the command if another process runs it."""
        garbage.expect_little()  # the plan stays in memory until the end
        shown = self.options.progress
        with held_signals() as held:
            try:
                record_run(self.request, run, progress=shown, held=held, beside=beside)
            except (LockHeldError, SealedError) as error:
                fail([run_elsewhere(run, error)])
            return self.report(run)

    def report(self, run: str) -> int:
        """Write the reports of the recorded run and return its exit code."""
        database = self.request.database
        with open_recorded(database, run) as view:
            if server_environ().get("KINDLM_LEASE"):
                return 0 if view.passed else 1  # the coordinator of this worker reports the group
            first, is_whole = None, view.info.ended == "finished"
            if not is_whole and (file := find_unwritten(database, run, view.db)) is not None:
                first = import_command(file, shown_path(database))
                # The event about this is in the file, not in the history.
                view.info = replace(view.info, ended="interrupted", reason=COULD_NOT_BE_WRITTEN)
            return self._report(view, first, view.info.reason)

    def report_group(self, group: str, reason: str | None) -> int:
        """Write the reports of a group of shards as of one run; return the exit code.

        `reason` says why the run was stopped; None if it was not.
        """
        with open_recorded(self.request.database, group, is_group=True) as view:
            first = None
            if view.group is not None and not view.group.complete:
                from kindlm.reports.commands import higher_limit

                first = f"kindlm test --resume {shlex.quote(group)}{higher_limit(reason)}"
            return self._report(view, first, reason)

    def _report(self, view: RunView, first: str | None, reason: str | None) -> int:
        options = replace(self.report_options(), first=first)
        errors = write_reports(self.reporters, view, options)
        if errors:
            from kindlm.reports.terminal_report import write_report

            if Reporter("terminal", write_report) not in self.reporters:
                # The user still gets the verdict.
                verdict_alone = replace(options, quiet=True, color=wants_color(sys.stderr))
                write_report(view, sys.stderr, verdict_alone)
        show(errors)
        annotate_github(view, options, os.environ)
        if self.options.compliance or any(suite.has_document for suite in self.request.suites):
            # This loads a template engine, which few runs need.
            from kindlm.cli.compliance import write_wanted

            errors += write_wanted(self.request, view, options, self.options)
        if reason in SIGNAL_NAMES:
            return INTERRUPTED
        return 0 if view.passed and not errors else 1

    def report_options(self) -> ReportOptions:
        """Return the options of its reports on standard output."""
        options = self.options
        return replace(
            report_options(options.database),
            width=make_console().width,
            quiet=options.quiet,
            durations=options.durations,
            not_loaded=frozenset(skipped.path for skipped in self.request.skipped),
        )


def record_run(
    request: RunRequest,
    run: str,
    *,
    progress: bool = True,
    held: HeldSignals | None = None,
    beside: Beside | None = None,
) -> None:
    """Run and record a request; report events that could not be recorded.

    With `--fail-fast`, nothing new starts after the first execution that failed or errored. Such a
    run is interrupted, not finished: it cannot be a baseline, and can be resumed. `held` keeps the
    signals that arrive after the run.
    """
    secret = suite_secrets(request.environ, request.suites)
    name_run(run, secret)
    remember_secrets(secret)
    log = open_log(request.database, secret)
    loop, stop = SteadyLoop(), Stop()
    steering = Steering(loop, stop)
    console = make_console()
    kind = kind_of_progress(console, shown=progress)
    view = kind(console, Redactor(secret), stop, request.options.fail_fast, steering.started)
    # A signal ends the process only after unrecorded events are in a file.
    signals = held_signals() if held is None else nullcontext(held)
    aside = nullcontext() if beside is None else beside(steering)

    async def session(held: HeldSignals) -> None:
        _log.info("The run starts", suites=len(request.suites))
        with held.stopping(stop):
            await run_session(request, run, log, view, stop)
        _log.info("The run ended", status=stop.reason or "complete")

    with closing(loop), signals as holding, log, aside:
        try:
            # Output of an agent in Python must not mix with a report on standard output.
            with suppress(WriteFailedError), view, redirect_stdout(sys.stderr):
                loop.run(session(holding))
        finally:
            guard.return_to_folder()
            # Also after an exception, unwritten events must not be lost with the process.
            if log.failure and server_environ().get("KINDLM_LEASE"):
                lost = broken(
                    f"The history of this worker, {request.database}, could no longer be written:"
                    f" {log.failure.__cause__ or log.failure}. What it had not pushed is lost.",
                    "Make room where temporary files go (TMPDIR), and resume the group.",
                )
                show([lost])
            elif log.failure:
                show([keep_unwritten(log, run, shown_path(request.database))])
        if log.failure:
            return
        for name, problem in log.projection_errors().items():
            warn(
                f"The table {name!r} could not be updated: {problem}",
                "Run: kindlm history rebuild",
            )


def end_now(message: str, code: int = 1) -> NoReturn:
    """End the process at once, from any thread."""
    with suppress(OSError):
        os.write(2, f"✗ {message}\n".encode())
    guard.leave(code)


def run_elsewhere(run: str, error: LockHeldError | SealedError) -> KindlmError:
    """Return the error that another process records a run, or has finished it."""
    if isinstance(error, SealedError):
        return misuse(
            f"Another process has finished run {run} meanwhile.", f"Look at it: kindlm show {run}"
        )
    return misuse(
        f"Run {run} is running already, in {error.by}.",
        "Wait until it has ended, or end it; then: kindlm test --resume",
    )


def refuse_unwritten(database: Path, run: str, reader: sqlite3.Connection) -> None:
    """End the command if a file holds events of the run: resumed, it could not take them."""
    if (file := find_unwritten(database, run, reader)) is not None:
        refuse(
            f"Run {run} cannot be resumed yet: {file} holds events that were not written.",
            f"Import them first: {import_command(file, shown_path(database))}; or delete the file"
            " to run these executions again.",
        )


@dataclass(slots=True)
class HeldSignals:
    """Stops a run on the first signal; after the run, keeps the first signal for later."""

    numbers: Iterable[int]
    waiting: list[int] = field(default_factory=list)
    _ask: Callable[[signal.Signals], object] | None = None

    @contextmanager
    def stopping(self, stop: Stop) -> Iterator[None]:
        """Let signals stop the run in this event loop, and keep them once the context ends."""
        loop = asyncio.get_running_loop()
        self._ask = lambda number: loop.call_soon_threadsafe(_stop_once_more, stop, number)
        for number in self.numbers:
            signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            self._ask = None

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if not guard.is_new_signal():
            return
        if self._ask is not None:
            self._ask(signal.Signals(number))
        elif self.waiting:
            raise KeyboardInterrupt
        else:
            self.waiting.append(number)


@contextmanager
def held_signals() -> Iterator[HeldSignals]:
    """Raise a signal that came after the run at the end of the context, once all is written.

    A second signal after the run raises `KeyboardInterrupt` at once.
    """
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # else started with nohup
        numbers.append(signal.SIGHUP)
    held = HeldSignals(numbers)
    with handling(numbers):
        yield held
    if held.waiting:
        signal.raise_signal(held.waiting[0])


def _stop_once_more(stop: Stop, number: signal.Signals) -> None:
    if stop.requested.is_set():
        stop.at_once.set()
        return
    name = "Ctrl-C" if number is signal.SIGINT else number.name
    stop.request(name)
    # After SIGHUP, the terminal is gone.
    with suppress(OSError):
        note(f"{name}: finishing running executions; {name} again ends them at once.")
