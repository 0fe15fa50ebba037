"""What is told at the end of a session: problems, the run, its reports, and what to type next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress

import pytest

from kindlm.cli.reporters import configured_reporters, of_project, spare, write_reports
from kindlm.cli.shown_path import shown_path
from kindlm.errors import Err, KindlmError
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.pytest_plugin.live_run import LiveRun, told_failure
from kindlm.pytest_plugin.request import Asked
from kindlm.recording.log import open_log
from kindlm.recording.secrets import redactor
from kindlm.reports.registry import ReportOptions
from kindlm.reports.untrusted import visible
from kindlm.wording import count
from kindlm_store import StoreError


def flaky_tests(name: str, asked: Asked) -> list[str]:
    """Return the names of the tests of a run or group that passed, but not all of their attempts.

    Raises `StoreError` if the history can not be read.
    """
    with open_log(asked.database, set()) as log, closing(log.reader()) as reader:
        found = find_run_or_group(reader, name)
        if isinstance(found, Err):
            return []
        tests = RunView(reader, found.value).tests()
        return [test.name for test in tests if test.flaky and test.status is Status.PASSED]


def write_configured_reports(name: str, asked: Asked) -> list[KindlmError]:
    """Write the reports of a run or group; return why some could not be written.

    Raises `StoreError` if the history can not be read.
    """
    reporters = configured_reporters(asked.root)
    if isinstance(reporters, Err):
        return [reporters.error]
    if not reporters.value:
        return []
    spared = spare(reporters.value, asked.database)
    if isinstance(spared, Err):
        return [spared.error]
    with open_log(asked.database, set()) as log, closing(log.reader()) as reader:
        found = find_run_or_group(reader, name)
        if isinstance(found, Err):
            return [found.error]
        look = ReportOptions(database=os.path.relpath(asked.database), named=asked.named)
        view = RunView(reader, found.value)
        return write_reports(reporters.value, view, of_project(look, asked.root))


_MOST_FLAKY = 10


def tell_problems(terminal: pytest.TerminalReporter, problems: Iterable[str]) -> None:
    """Tell what the user has to know besides what the tests said; each once."""
    redact = redactor(os.environ)
    for problem in dict.fromkeys(problems):
        terminal.write_line(f"kindlm: {redact(problem)}", yellow=True)


def tell_run(terminal: pytest.TerminalReporter, live: LiveRun, asked: Asked) -> None:
    """Tell the id of a run, or that it could not be recorded, and the command that shows it."""
    if live.failure is not None:
        why = told_failure(live.failure)
        terminal.write_line(f"kindlm: the run could not be recorded: {why}", red=True)
        return
    tell_recorded(terminal, "run", live.run, asked)


def tell_recorded(terminal: pytest.TerminalReporter, what: str, name: str, asked: Asked) -> None:
    """Tell a run or a group, what in it was flaky, and the command that shows it."""
    where = f" --db {shlex.quote(shown_path(asked.database))}" if asked.named else ""
    command = f"kindlm show {name}{where}"
    with suppress(StoreError):  # a history that can not be read was told already
        _tell_flaky(terminal, flaky_tests(name, asked), command)
    terminal.write_line(f"kindlm {what} {name}: {command}")


def _tell_flaky(terminal: pytest.TerminalReporter, names: Sequence[str], command: str) -> None:
    if not names:
        return
    tests = count(len(names), "test")
    terminal.write_line(
        f"kindlm: {tests} passed, but not in each repeat or attempt (flaky):", yellow=True
    )
    redact = redactor(os.environ)
    for name in names[:_MOST_FLAKY]:
        terminal.write_line(f"  {visible(redact(name))}", yellow=True)
    if len(names) > _MOST_FLAKY:
        terminal.write_line(f"  and {len(names) - _MOST_FLAKY} more: {command}", yellow=True)
