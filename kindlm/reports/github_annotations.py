"""Writes failures, and tests that check nothing, as annotations.

GitHub shows them at the lines of a suite's file.

An annotation is a workflow command that a step prints. For the format see
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Literal, NamedTuple

from kindlm.history.run_view import RunView
from kindlm.outcome import NOTHING_CHECKED, Status
from kindlm.reports.causes import causes_of
from kindlm.reports.facts import unsettled
from kindlm.reports.figures import comparison
from kindlm.reports.untrusted import bounded, one_line, visible

_MOST_ANNOTATIONS = 10
"""GitHub shows this many errors of a step."""

_MOST_TESTS = 500
"""How many failed tests are grouped: all cases of a table may fail at the same line."""

_TEXT = 1_000

_IN_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTIES = _IN_DATA | str.maketrans({":": "%3A", ",": "%2C"})


class Annotation(NamedTuple):
    """An error or a warning at a line of a file; `file` is a path within the repository."""

    file: str
    line: int | None
    title: str
    message: str
    level: Literal["error", "warning"] = "error"


def annotations_of(view: RunView, folder: str = "") -> list[Annotation]:
    """Return why a run failed, and which tests check nothing, as many as GitHub shows.

    `folder` is that of the project in its repository.
    """
    found = islice(_all(view), _MOST_ANNOTATIONS)
    return [annotation._replace(file=in_folder(folder, annotation.file)) for annotation in found]


def as_command(annotation: Annotation) -> str:
    """Return an annotation as one line, escaped so that no text can end or extend it."""
    properties = {
        "file": one_line(annotation.file, 1_000),
        **({} if annotation.line is None else {"line": str(annotation.line)}),
        "title": one_line(annotation.title),
    }
    written = ",".join(
        f"{name}={text.translate(_IN_PROPERTIES)}" for name, text in properties.items()
    )
    return f"::{annotation.level} {written}::{visible(annotation.message).translate(_IN_DATA)}"


def in_folder(folder: str, path: str) -> str:
    """Return the path within the repository of a file in `folder`; an absolute path unchanged."""
    return path if not folder or path.startswith("/") else f"{folder}/{path}"


def _all(view: RunView) -> Iterator[Annotation]:
    if view.suites and (no_verdict := unsettled(view)) is not None:
        title = no_verdict.code.replace("_", " ").capitalize()
        yield Annotation(view.suites[0].path, None, title, bounded(no_verdict.message, _TEXT))
    for suite in view.suites:
        if suite.error_code is not None:
            title = f"{suite.name} could not be run"
            yield Annotation(suite.path, suite.line, title, bounded(suite.error or "", _TEXT))
    # A failure that the gates of its suite tolerate did not make the run fail.
    failed = (
        test
        for suite in view.suites
        for test in view.tests(suite.id)
        if test.counts.errored or (test.status is Status.FAILED and not suite.tolerates)
    )
    for cause in causes_of(view, islice(failed, _MOST_TESTS)):
        title, is_longer, _ = cause.sentence.partition("\n")
        lines = [cause.sentence] if is_longer else []
        lines += [cause.whom, *(f"{name}: {text}" for name, text in cause.details)]
        file, line = next(iter(cause.places))
        yield Annotation(file, line, title, "\n".join(lines))
    for suite in view.suites:
        for gate in suite.gates:
            if not gate.passed:
                title = f"Gate {gate.name}"
                message = f"{comparison(gate)}\n{gate.message}"
                yield Annotation(suite.path, None, title, message)
    if any(warning == NOTHING_CHECKED for warning, _ in view.warnings_of_passed()):
        for test in view.tests():
            if any(NOTHING_CHECKED in execution.warnings for execution in view.executions(test)):
                title = f"{test.name} checks nothing"
                yield Annotation(test.file, test.line, title, NOTHING_CHECKED, "warning")
