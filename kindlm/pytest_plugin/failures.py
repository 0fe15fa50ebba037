"""What pytest shows of a scenario that did not pass: its failed checks, as they are recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from kindlm.errors import KindlmError
from kindlm.history.rows import AssertionView, ExecutionView
from kindlm.history.run_view import RunView
from kindlm.outcome import Outcome, Status
from kindlm.pytest_plugin.live_run import LiveRun, Ran
from kindlm.reports.untrusted import visible

_MOST = 2000
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


def told_error(error: KindlmError) -> str:
    """Return an error with its place and its way out."""
    where = f"{error.where}: " if error.where else ""
    return visible("\n".join(filter(None, (f"{where}{error.message}", error.hint))))


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
    return text if len(text) <= _MOST else f"{text[:_MOST]}… ({len(text):,} characters)"
