"""Shows a scenario's failed checks, and the run at the end of a session."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress

import pytest

from kindlm.cli.github import inert
from kindlm.cli.history import of_project
from kindlm.cli.reporters import configured_reporters, spare, write_reports
from kindlm.errors import Err, KindlmError, Ok
from kindlm.history.rows import read_test
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.pytest_plugin.driven_run import DrivenRun, Ran
from kindlm.pytest_plugin.session_request import SessionOptions
from kindlm.recording.history_file import open_log
from kindlm.recording.secrets import redactor
from kindlm.reports.causes import Cause, Row, causes_of
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import visible
from kindlm.wording import count, shown_path
from kindlm_store import StoreError

_WIDTH = 10


def failure_report(live: DrivenRun, ran: Ran, options: SessionOptions) -> str:
    """Return why a test did not pass: the causes, the agent's actions, and the command for more."""
    with closing(live.log.reader()) as reader:
        view = RunView(reader, live.run)
        one = view.execution(ran.finished[0].execution.id)
        assert one is not None, "a finished execution is recorded"
        test = read_test(view.db, one.suite_id, one.test, one.target)
        lines = list(_of_causes(causes_of(view, [test]), _database(options)))
    if ran.planned > 1:
        passed = sum(finished.status is Status.PASSED for finished in ran.finished)
        lines.append(f"{passed} of {ran.planned} repeats passed")
    return inert(visible("\n".join(lines)))


def _of_causes(causes: Sequence[Cause], database: str) -> Iterator[str]:
    """Yield the lines of each cause; a line that several causes share is shown once.

    The first line is the reason in pytest's summary.
    """
    shown = set[Row]()
    for cause in causes:
        yield cause.sentence
        rows = [row for row in cause.details if row not in shown]
        shown.update(rows)
        for name, text in rows:
            if text:
                more = database if name == "look" else ""
                yield f"    {name:{_WIDTH}}{text}{more}".replace("\n", f"\n{' ' * (_WIDTH + 4)}")


def write_configured_reports(name: str, options: SessionOptions) -> list[KindlmError]:
    """Write the reports of a run or group; returns the errors of reports that could not be written.

    Raises `StoreError` if the history cannot be read.
    """
    reporters = configured_reporters(options.root)
    if isinstance(reporters, Err):
        return [reporters.error]
    if not reporters.value:
        return []
    spared = spare(reporters.value, options.database)
    if isinstance(spared, Err):
        return [spared.error]
    with open_log(options.database) as log, closing(log.reader()) as reader:
        found = find_run_or_group(reader, name)
        if isinstance(found, Err):
            return [found.error]
        database = os.path.relpath(options.database) if options.named else None
        shown = of_project(ReportOptions(database=database), options.root)
        return write_reports(reporters.value, RunView(reader, found.value), shown)


def print_problems(terminal: pytest.TerminalReporter, problems: Iterable[str]) -> None:
    """Print each problem once."""
    redact = redactor()
    for problem in dict.fromkeys(problems):
        terminal.write_line(inert(visible(f"kindlm: {redact(problem)}")), yellow=True)


def print_recorded(
    terminal: pytest.TerminalReporter, what: str, name: str, options: SessionOptions
) -> None:
    """Print the number of flaky tests of a run or group, and the command that shows it."""
    flaky = 0
    with (
        suppress(StoreError),  # reported already
        open_log(options.database) as log,
        closing(log.reader()) as reader,
    ):
        found = find_run_or_group(reader, name)
        if isinstance(found, Ok):
            tests = RunView(reader, found.value).tests()
            flaky = sum(each.flaky and each.status is Status.PASSED for each in tests)
    if flaky:
        line = f"kindlm: {count(flaky, 'test')} passed, but not in each repeat or attempt (flaky)"
        terminal.write_line(line, yellow=True)
    terminal.write_line(f"kindlm {what} {name}: kindlm show {name}{_database(options)}")


def _database(options: SessionOptions) -> str:
    return f" --db {shlex.quote(shown_path(options.database))}" if options.named else ""
