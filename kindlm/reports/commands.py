"""Commands that reports suggest, and places in files, as the user can type them here."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path

from kindlm.history.run_view import RunView
from kindlm.history.runs import options_of
from kindlm.outcome import Status
from kindlm.reports.facts import went_wrong
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import one_line
from kindlm.wording import option_words

_FINISHED_BY = {
    "live": "kindlm test --resume {run}",
    "rescored": "kindlm rescore --resume {run}",
    "replayed": "kindlm replay --from {source}",
}
"""The commands that finish a stopped run, by its mode."""

_FOUND_BY_VALIDATE = ("CONFIG_PARSE_ERROR", "CONFIG_VALIDATION_ERROR")
"""The errors of suites that `kindlm validate` finds, too."""


def show_run(view: RunView) -> str:
    """Return the command that shows a run, or a group."""
    return f"kindlm show {_typed_id(view)}"


def _typed_id(view: RunView) -> str:
    return shlex.quote(one_line(view.id))


def show_command(execution: str) -> str:
    """Return the command that shows an execution, by its id."""
    run, _, number = execution.rpartition("-")
    return f"kindlm show {run} {number}"


def next_command(view: RunView, options: ReportOptions) -> str:
    """Return the next command to type.

    It finishes a stopped run or a group, else checks a suite that could not be loaded or shows the
    first failed execution, else opens the history.
    """
    was_stopped = view.status in ("interrupted", "aborted", "killed")
    if (was_stopped or view.status == "incomplete") and view.runner is not None:
        # pytest has to select the tests again; its --lf leaves out those that never ran.
        return f"{view.runner} --kindlm"
    if was_stopped and view.info.mode in _FINISHED_BY:
        command = _FINISHED_BY[view.info.mode].format(run=view.id, source=view.info.source_run)
        return command + (higher_limit(view.info.reason) if view.info.ended == "aborted" else "")
    if view.group is not None and not view.group.complete:
        if any(shard.state == "running" for shard in view.group.unfinished):
            return show_run(view)
        resume = f"kindlm test --resume {_typed_id(view)}"
        if view.group.missing:
            # Two commands: a page adds a named history at the end of one.
            db = "" if options.database is None else f" --db {shlex.quote(options.database)}"
            return f"kindlm history merge DB{db} if they ran elsewhere, else {resume}{db}"
        return resume
    for suite in view.suites:
        if suite.error_code is not None:
            if suite.line is not None or suite.error_code in _FOUND_BY_VALIDATE:
                return shlex.join(["kindlm", "validate", typed_path(suite.path, options.root)])
            return shlex.join(["kindlm", "test", *_selection(view, options)])
    for _, test in went_wrong(view):
        for execution in view.executions(test):
            if execution.status in (Status.FAILED, Status.ERRORED):
                return show_command(execution.id)
        # A limit for all repeats together may be broken although each of them passed.
        return f"{show_run(view)} --verbose"
    return "kindlm browse"


def higher_limit(reason: str | None) -> str:
    """Return the option for resuming a run that `--max-cost` ended: its limit still applies."""
    return " --max-cost MORE" if "--max-cost" in (reason or "") else ""


def rerun_failed(view: RunView, options: ReportOptions) -> str:
    """Return the command that runs the failed tests of a run again."""
    return shlex.join(["kindlm", "test", *_selection(view, options), "--failed"])


_SELECTING_OPTIONS = {
    "suite": "--suite",
    "tests": "--test",
    "models": "--model",
    "keywords": "-k",
    "compat": "--compat",
    "tags": "--tags",
}
"""The options that select tests, or the rules for them, by their recorded names."""


def _selection(view: RunView, options: ReportOptions) -> list[str]:
    """Return the paths and options with which a run selected its tests, to type them again.

    Paths are left out if `kindlm test` finds them by itself.
    """
    recorded = options_of(view.db, *view.runs).get(view.runs[0], {})
    paths = recorded.get("paths") or []
    is_default = tuple(paths) == options.default_paths
    words = [] if is_default else [typed_path(path, options.root) for path in paths]
    for name, option in _SELECTING_OPTIONS.items():
        if value := recorded.get(name):
            words += option_words(option, value)
    return words


def typed_path(path: str, root: Path | None) -> str:
    """Return a recorded path, which is relative to `root`, relative to the current folder."""
    if root is None:
        return path
    file = root / path
    with suppress(OSError):  # a path of another system may be invalid here
        if file.exists():
            return os.path.relpath(file)
    _, is_pack, pack = path.partition("pack:")
    return is_pack + pack if is_pack else path


def place(path: str, line: int | None, root: Path | None = None) -> str:
    """Return `file:line`, which editors turn into a link; safe to print.

    With the root of the project, the path is relative to the current folder.
    """
    shown = typed_path(path, root)
    return one_line(shown if line is None else f"{shown}:{line}")
