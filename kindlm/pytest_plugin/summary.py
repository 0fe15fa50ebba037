"""What pytest shows: the failed checks of a scenario, and the run at the end of a session."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

import pytest

from kindlm.cli.reporters import configured_reporters, of_project, spare, write_reports
from kindlm.errors import Err, KindlmError
from kindlm.history.rows import AssertionView, ExecutionView
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.outcome import Outcome, Status
from kindlm.pytest_plugin.live_run import LiveRun, Ran, told_failure
from kindlm.pytest_plugin.session_request import Asked
from kindlm.recording.history_file import open_log
from kindlm.recording.secrets import redactor
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import visible
from kindlm.wording import count, shown_path
from kindlm_store import StoreError

_MOST_SHOWN = 2000
"""Characters of a text that are shown of one check; the history has all of it."""


def failure_report(live: LiveRun, ran: Ran) -> str:
    """Return the list of failed checks of a test, run by run if it was repeated."""
    lines: list[str] = []
    with closing(live.log.reader()) as reader:
        view = RunView(reader, live.run)
        for finished in sorted(ran.finished, key=lambda each: each.execution.repeat):
            execution = view.execution(finished.execution.id)
            if execution is None or execution.status in (Status.PASSED, Status.SKIPPED):
                continue
            if ran.planned > 1:
                lines.append(f"repeat {execution.repeat} of {ran.planned}: {execution.status}")
            lines += _of_execution(execution, view.assertions(execution))
    if ran.planned > 1:
        passed = sum(finished.status is Status.PASSED for finished in ran.finished)
        lines.append(f"{passed} of {ran.planned} repeats passed")
    lines.append(f"Everything that was said: kindlm show {live.run}")
    return visible("\n".join(lines))


def _of_execution(execution: ExecutionView, checks: Sequence[AssertionView]) -> Iterator[str]:
    if execution.error is not None:
        yield f"error: {execution.error}"
        if execution.hint:
            yield f"  {execution.hint}"
        if execution.trace:
            yield from (f"  {line}" for line in execution.trace.rstrip().splitlines())
    for check in checks:
        if check.is_wrong:
            yield from _of_check(execution.file, check)


def _of_check(file: str, check: AssertionView) -> Iterator[str]:
    place = file if check.line is None else f"{file}:{check.line}"
    undecided = " (undecided)" if check.outcome is Outcome.INCONCLUSIVE else ""
    yield f"{place}: {check.kind}: {check.label}{undecided}"
    if check.message:
        yield f"  {check.message}"
    for name, value in (("expected", check.expected), ("actual", check.actual)):
        if value is not None:
            yield f"  {name}: {_cut(value)}"


def _cut(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}… ({len(text):,} characters)"


def flaky_tests(name: str, asked: Asked) -> list[str]:
    """Return the names of the tests of a run or group that passed, but not all of their attempts.

    Raises `StoreError` if the history cannot be read.
    """
    with open_log(asked.database, set()) as log, closing(log.reader()) as reader:
        found = find_run_or_group(reader, name)
        if isinstance(found, Err):
            return []
        tests = RunView(reader, found.value).tests()
        return [test.name for test in tests if test.flaky and test.status is Status.PASSED]


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
    with open_log(asked.database, set()) as log, closing(log.reader()) as reader:
        found = find_run_or_group(reader, name)
        if isinstance(found, Err):
            return [found.error]
        look = ReportOptions(database=os.path.relpath(asked.database), named=asked.named)
        view = RunView(reader, found.value)
        return write_reports(reporters.value, view, of_project(look, asked.root))


_MOST_FLAKY = 10


def tell_problems(terminal: pytest.TerminalReporter, problems: Iterable[str]) -> None:
    """Print each problem once."""
    redact = redactor(os.environ)
    for problem in dict.fromkeys(problems):
        terminal.write_line(f"kindlm: {redact(problem)}", yellow=True)


def tell_run(terminal: pytest.TerminalReporter, live: LiveRun, asked: Asked) -> None:
    """Print the run and the command that shows it, or why it could not be recorded."""
    if live.failure is not None:
        why = told_failure(live.failure)
        terminal.write_line(f"kindlm: the run could not be recorded: {why}", red=True)
        return
    tell_recorded(terminal, "run", live.run, asked)


def tell_recorded(terminal: pytest.TerminalReporter, what: str, name: str, asked: Asked) -> None:
    """Print the flaky tests of a run or group, and the command that shows it."""
    where = f" --db {shlex.quote(shown_path(asked.database))}" if asked.named else ""
    command = f"kindlm show {name}{where}"
    with suppress(StoreError):  # reported already
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
