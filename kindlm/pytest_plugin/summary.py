"""What is told at the end of a session: problems, the run, and what to type next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable

import pytest

from kindlm.cli.shown_path import shown_path
from kindlm.pytest_plugin.live_run import LiveRun, told_failure
from kindlm.pytest_plugin.request import Asked
from kindlm.recording.secrets import redactor

__all__ = ["tell_problems", "tell_run"]


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
    terminal.write_line(f"kindlm run {live.run}: {show_command(live.run, asked)}")


def show_command(name: str, asked: Asked) -> str:
    """Return the command that shows a run or a group."""
    where = f" --db {shlex.quote(shown_path(asked.database))}" if asked.named else ""
    return f"kindlm show {name}{where}"
