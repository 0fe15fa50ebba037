"""The report `html`: a run as one file that needs no server, for a CI artifact or an e-mail.

It contains the run's page and a short form of each execution, failed ones first. Text that repeats,
such as a system prompt, is written once; its other places link to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator
from typing import Any, TextIO

from markupsafe import Markup

from kindlm.dataclass import replace
from kindlm.history.masking import as_shown
from kindlm.history.queries import paid_for_execution
from kindlm.history.rows import ExecutionView
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports.conversation import assertion_name, attempts_of, excerpts_of, status_word
from kindlm.reports.diff.html import STYLE_MOODS, VERDICT_MOODS
from kindlm.reports.diff.parts import changed_tests, changes_since_before, what_changed
from kindlm.reports.diff.phrases import LOOKS, diff_command, notes_of, outcome_text
from kindlm.reports.pages.html_document import (
    MOODS,
    SIGNS,
    Links,
    render,
    render_fragment,
    render_part,
)
from kindlm.reports.pages.run_pages import run_document
from kindlm.reports.report_registry import ReportOptions

_MOST_BYTES = 1_800_000
"""The file gets no more executions from this size on: it has to open quickly."""

_CELLS = 200
_REPEATS = 20
"""How many tests on targets are listed, and how many repeats of each."""

_MOST_CHANGES = 20
"""How many tests are listed that changed since the previous run."""

_LINKED_LENGTH = 160
"""Text of at least this many characters is linked to instead of repeated."""

_MOST_OPENED = 3
"""How many failed executions are unfolded when the file opens."""

_WRONG = (Status.FAILED, Status.ERRORED)


class _FileLinks(Links):
    """Links within the file, to the executions that it contains."""

    def __init__(self, written: Container[str]) -> None:
        self._written = written

    def page(self, *parts: str, **query: str) -> str | None:
        """Return the anchor of an execution."""
        del query
        is_written = parts[0] == "execution" and parts[1] in self._written
        return f"#{parts[1]}" if is_written else None


def write_report(view: RunView, out: TextIO, options: ReportOptions) -> None:
    """Write the page of a recorded run with its executions."""
    rows = max(_CELLS // max(view.most_targets(), 1), 1)
    overview = run_document(view, rows=rows, repeats=_REPEATS, changes=_changes(view, options))
    size = len(render_part(overview, Links()).encode())
    written = _executions(view, size)
    tests = [test.counts for test in view.tests()]
    wrong = sum(counts.failed + counts.errored for counts in tests)
    document = replace(
        overview,
        template="report.html",
        values={
            **overview.values,
            "running": False,
            "executions": written.values(),
            "left_out": sum(counts.total for counts in tests) - len(written),
            "left_out_failed": max(wrong - len(written), 0),
        },
        styles=(*overview.styles, "report"),
        scripts=(),
    )
    out.writelines(render(document, _FileLinks(written)))


def _changes(view: RunView, options: ReportOptions) -> dict[str, Any] | None:
    """Return the changes since the previous run, for the template; None without a comparison."""
    if (changes := changes_since_before(view, options)) is None:
        return None
    diff, headline, is_marked = changes
    tests = changed_tests(diff)
    return {
        "before": diff.before.id,
        "headline": headline,
        "mood": VERDICT_MOODS[headline.good] if is_marked else "soft",
        "notes": list(notes_of(diff)),
        "tests": [
            (LOOKS[test.kind], test, outcome_text(test), what_changed(test))
            for test in tests[:_MOST_CHANGES]
        ],
        "moods": STYLE_MOODS,
        "more": max(len(tests) - _MOST_CHANGES, 0),
        "command": diff_command(diff),
    }


def _executions(view: RunView, size: int) -> dict[str, Markup]:
    """Return the executions that fit into the file, by id, those first that did not pass.

    `size` is that of the file without them, in bytes.
    """
    written: dict[str, Markup] = {}
    anchors = set[str]()
    for execution in _in_order(view):
        opened = execution.status in _WRONG and len(written) < _MOST_OPENED
        piece = _rendered(view, execution, anchors, opened=opened)
        size += len(piece.encode())
        if size > _MOST_BYTES:
            break
        written[execution.id] = piece
    return written


def _in_order(view: RunView) -> Iterator[ExecutionView]:
    for wrong in (True, False):
        for test in view.tests():
            if not wrong or test.counts.failed or test.counts.errored:
                executions = view.executions(test)
                yield from (e for e in executions if (e.status in _WRONG) is wrong)


def _rendered(
    view: RunView, execution: ExecutionView, anchors: set[str], *, opened: bool
) -> Markup:
    """Return an execution; `anchors` are those of the texts that the file contains so far."""
    attempts, mask = as_shown(view.attempts(execution))
    last, status = attempts[-1], status_word(execution)

    def once(text: str | None) -> tuple[bool, str | None]:
        """Return whether text was written before, and its anchor; None for short text."""
        if text is None or len(text) < _LINKED_LENGTH:
            return False, None
        anchor = "t" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
        is_known = anchor in anchors
        anchors.add(anchor)
        return is_known, anchor

    return render_fragment(
        "report_execution.html",
        {
            "id": execution.id,
            "execution": last.execution,
            "paid": paid_for_execution(view.db, execution.id),
            "opened": opened,
            "mood": MOODS.get(status, "unsure"),
            "sign": SIGNS.get(status, "·"),
            "last": last,
            "name": assertion_name,
            "excerpts": excerpts_of,
            "attempts": attempts_of(view, execution, attempts, mask),
            "earlier": {attempt.number: attempt for attempt in attempts[:-1]},
            "once": once,
        },
    )
