"""Writes failures as annotations, which GitHub shows at the lines of a suite's file.

They are workflow commands: lines that a step writes to its output, in the form of
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from kindlm.dataclass import dataclass, replace
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports.causes import causes_of
from kindlm.reports.facts import show_command, unsettled
from kindlm.reports.figures import comparison
from kindlm.reports.untrusted import bounded, one_line, visible

_MOST = 10
"""GitHub shows so many errors of a step, and no more."""

_LOOKED_AT = 500
"""All rows of a table of tests may fail at one line: so many failed tests are looked at."""

_MORE = 4
_TEXT = 1_000

_IN_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTIES = _IN_DATA | str.maketrans({":": "%3A", ",": "%2C"})


@dataclass(frozen=True, slots=True)
class Annotation:
    """An error at a line of a file; `file` is a path inside the repository."""

    file: str
    line: int | None
    title: str
    message: str


def annotations_of(view: RunView, folder: str = "") -> list[Annotation]:
    """Return what made a run fail, one annotation for each cause, as many as GitHub shows.

    Causes that have the same place have one annotation.

    Args:
        view: A recorded run.
        folder: Where the project lies inside its repository.
    """
    found: dict[tuple[str, int | None], list[Annotation]] = {}
    for annotation in _all(view):
        place = (annotation.file, annotation.line)
        if place not in found and len(found) == _MOST:
            break
        found.setdefault(place, []).append(annotation)
    return [
        replace(
            first,
            file=in_folder(folder, first.file),
            message="\n\n".join(
                [first.message, *(f"{a.title}\n{a.message}" for a in more[:_MORE])]
            ),
        )
        for first, *more in found.values()
    ]


def as_command(annotation: Annotation) -> str:
    """Return an annotation as one line, which nothing in its texts can end or extend."""
    properties = {
        "file": one_line(annotation.file, 1_000),
        **({} if annotation.line is None else {"line": str(annotation.line)}),
        "title": one_line(annotation.title),
    }
    written = ",".join(
        f"{name}={text.translate(_IN_PROPERTIES)}" for name, text in properties.items()
    )
    return f"::error {written}::{visible(annotation.message).translate(_IN_DATA)}"


def in_folder(folder: str, path: str) -> str:
    """Return a path of a project as one of the repository; an absolute one as it is."""
    return path if not folder or path.startswith("/") else f"{folder}/{path}"


def _all(view: RunView) -> Iterator[Annotation]:
    if view.suites and (without := unsettled(view)) is not None:
        title = without.code.replace("_", " ").capitalize()
        yield Annotation(view.suites[0].path, None, title, bounded(without.message, _TEXT))
    for suite in view.suites:
        if suite.error_code is not None:
            title = f"{suite.name} could not be run"
            yield Annotation(suite.path, suite.line, title, bounded(suite.error or "", _TEXT))
    # The tests that made the run fail; failures that a suite tolerates did not.
    failed = (
        test
        for suite in view.suites
        for test in view.tests(suite.id)
        if test.counts.errored or (test.status is Status.FAILED and not suite.tolerates)
    )
    for cause in causes_of(view, islice(failed, _LOOKED_AT)):
        rows = [f"{name}: {text}" for name, text in cause.rows]
        title, is_longer, _ = cause.sentence.partition("\n")
        lines = [cause.sentence] if is_longer else []
        lines += [cause.whom, *([cause.where] if cause.where else []), *rows]
        lines.append(show_command(cause.executions[0]))
        for file, line in cause.places:
            yield Annotation(file, line, title, "\n".join(lines))
    for suite in view.suites:
        for gate in suite.gates:
            if not gate.passed:
                title = f"Gate {gate.name}"
                message = f"{comparison(gate)}\n{gate.message}"
                yield Annotation(suite.path, None, title, message)
