"""Shows a scenario's failed checks, and the run at the end of a session."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress

import pytest

from kindlm.cli.history import of_project
from kindlm.cli.reporters import configured_reporters, spare, write_reports
from kindlm.errors import Err, KindlmError, Ok
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.pytest_plugin.driven_run import DrivenRun, Ran, told_failure
from kindlm.pytest_plugin.session_request import Asked
from kindlm.recording.history_file import open_log
from kindlm.recording.secrets import redactor
from kindlm.reports.causes import Cause, Row, causes_of
from kindlm.reports.facts import show_command
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import visible
from kindlm.wording import count, shown_path
from kindlm_store import StoreError

_WIDTH = 10


def failure_report(live: DrivenRun, ran: Ran, asked: Asked) -> str:
    """Return why a test did not pass: the causes, what the agent did, and what shows more."""
    with closing(live.log.reader()) as reader:
        view = RunView(reader, live.run)
        one = view.execution(ran.finished[0].execution.id)
        assert one is not None, "what has finished is recorded"
        lines = list(_of_causes(causes_of(view, [view.test_of(one)]), _database(asked)))
    if ran.planned > 1:
        passed = sum(finished.status is Status.PASSED for finished in ran.finished)
        lines.append(f"{passed} of {ran.planned} repeats passed")
    return visible("\n".join(lines))


def _of_causes(causes: Sequence[Cause], database: str) -> Iterator[str]:
    """Yield each cause with what is known of it; what several causes share stands with the first.

    The first line is the reason that pytest shows in its summary.
    """
    told = set[Row]()
    for cause in causes:
        yield cause.sentence
        look = ("look", show_command(cause.executions[0]) + database)
        rows = [row for row in (*cause.rows, ("at", cause.place), look) if row not in told]
        told.update(rows)
        for name, text in rows:
            if text:
                yield f"    {name:{_WIDTH}}{text}".replace("\n", f"\n{' ' * (_WIDTH + 4)}")


def write_configured_reports(name: str, asked: Asked) -> list[KindlmError]:
    """Write the reports of a run or group; return why some could not be written.

    Raises `StoreError` if the history cannot be read.
    """
    reporters = configured_reporters(asked.root)
    if isinstance(reporters, Err):
        return [reporters.error]
    if not reporters.value:
        return []
    spared = spare(reporters.value, asked.database)
    if isinstance(spared, Err):
        return [spared.error]
    with open_log(asked.database) as log, closing(log.reader()) as reader:
        found = find_run_or_group(reader, name)
        if isinstance(found, Err):
            return [found.error]
        look = ReportOptions(database=os.path.relpath(asked.database) if asked.named else None)
        view = RunView(reader, found.value)
        return write_reports(reporters.value, view, of_project(look, asked.root))


_MOST_FLAKY = 10


def tell_problems(terminal: pytest.TerminalReporter, problems: Iterable[str]) -> None:
    """Print each problem once."""
    redact = redactor()
    for problem in dict.fromkeys(problems):
        terminal.write_line(f"kindlm: {redact(problem)}", yellow=True)


def tell_run(terminal: pytest.TerminalReporter, live: DrivenRun, asked: Asked) -> None:
    """Print the run and the command that shows it, or why it could not be recorded."""
    if live.failure is not None:
        why = told_failure(live.failure)
        terminal.write_line(f"kindlm: the run could not be recorded: {why}", red=True)
        return
    tell_recorded(terminal, "run", live.run, asked)


def tell_recorded(terminal: pytest.TerminalReporter, what: str, name: str, asked: Asked) -> None:
    """Print the flaky tests of a run or group, and the command that shows it."""
    command = f"kindlm show {name}{_database(asked)}"
    with (
        suppress(StoreError),  # reported already
        open_log(asked.database) as log,
        closing(log.reader()) as reader,
    ):
        found = find_run_or_group(reader, name)
        if isinstance(found, Ok):
            _tell_flaky(terminal, RunView(reader, found.value), command)
    terminal.write_line(f"kindlm {what} {name}: {command}")


def _tell_flaky(terminal: pytest.TerminalReporter, view: RunView, command: str) -> None:
    """Print the names of the tests that passed, but not all of their attempts."""
    flaky = [test.name for test in view.tests() if test.flaky and test.status is Status.PASSED]
    if not flaky:
        return
    tests = count(len(flaky), "test")
    terminal.write_line(
        f"kindlm: {tests} passed, but not in each repeat or attempt (flaky):", yellow=True
    )
    redact = redactor()
    for name in flaky[:_MOST_FLAKY]:
        terminal.write_line(f"  {visible(redact(name))}", yellow=True)
    if len(flaky) > _MOST_FLAKY:
        terminal.write_line(f"  and {len(flaky) - _MOST_FLAKY} more: {command}", yellow=True)


def _database(asked: Asked) -> str:
    return f" --db {shlex.quote(shown_path(asked.database))}" if asked.named else ""
