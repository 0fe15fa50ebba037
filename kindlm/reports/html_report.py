"""The report `html`: a run as one file that needs no server, for a CI artifact or a mail.

It contains the page of the run, and each execution in short, failed ones first. A text that occurs
several times, such as a system text, is included once; other places link to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator
from dataclasses import field
from typing import Any, TextIO

from markupsafe import Markup

from kindlm.dataclass import dataclass, replace
from kindlm.history.masking import as_shown
from kindlm.history.queries import paid_for_execution
from kindlm.history.rows import ExecutionView
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports.conversation import attempts_of, excerpts_of, status_word
from kindlm.reports.diff.html import STYLE_MOODS, VERDICT_MOODS
from kindlm.reports.diff.parts import changed_tests, changes_since_before
from kindlm.reports.diff.phrases import notes_of
from kindlm.reports.facts import assertion_name
from kindlm.reports.pages.html_document import (
    MOODS,
    SIGNS,
    Document,
    Links,
    render,
    render_fragment,
    render_part,
)
from kindlm.reports.pages.run_pages import run_document
from kindlm.reports.report_registry import ReportOptions

_BYTES = 1_700_000
"""From so many bytes on, executions are only counted: the file has to open quickly."""

_MOST_BYTES = 1_900_000
"""So many it may have with the last execution."""

_OVERVIEW_BYTES = 700_000
"""So many the tests, the verdict and the totals of the run may take of it."""

_OVERVIEWS = ((300, 100), (100, 30), (50, 10), (20, 5), (10, 1))
"""How many tests are listed, with how many repeats of each: the first that is small enough."""

_CHANGES = 20
"""So many tests that changed since the run before are listed."""

_REPEATED = 160
"""Shorter texts are written again where they occur again."""

_OPENED = 3
"""So many executions that failed are unfolded from the start."""

_WRONG = (Status.FAILED, Status.ERRORED)


class _FileLinks(Links):
    """The links of the file: executions are places in it; those that are `there`, None: all."""

    def __init__(self, there: Container[str] | None = None) -> None:
        self._there = there

    def execution(self, execution: str) -> str | None:
        """Return where an execution stands in the file, None if it does not."""
        return f"#{execution}" if self._there is None or execution in self._there else None


def report_page(view: RunView, options: ReportOptions) -> tuple[Document, Links]:
    """Return the page of a recorded run with its executions, and where its links lead."""
    changes = _changes(view, options)
    for rows, repeats in _OVERVIEWS:
        overview = run_document(view, rows=rows, repeats=repeats, changes=changes)
        # As many bytes at most, wherever its links will lead.
        size = len(render_part(overview, _FileLinks()).encode())
        if size <= _OVERVIEW_BYTES:
            break
    pieces = _Pieces(view, size)
    written = list(pieces)
    tests = [test.counts for test in view.tests()]
    document = replace(
        overview,
        template="report.html",
        values={
            **overview.values,
            "running": False,
            "executions": written,
            "left_out": sum(counts.total for counts in tests) - len(pieces.there),
            "left_out_failed": sum(counts.failed + counts.errored for counts in tests)
            - pieces.wrong,
        },
        styles=(*overview.styles, "report"),
        scripts=(),
    )
    return document, _FileLinks(pieces.there)


def _changes(view: RunView, options: ReportOptions) -> dict[str, Any] | None:
    """Return what changed since the run before, for the template; None if nothing is compared."""
    if (changes := changes_since_before(view, options)) is None:
        return None
    diff, headline, is_marked = changes
    tests, more = changed_tests(diff, _CHANGES)
    return {
        "before": diff.before.id,
        "headline": headline,
        "mood": VERDICT_MOODS[headline.good] if is_marked else "soft",
        "notes": list(notes_of(diff)),
        "tests": tests,
        "moods": STYLE_MOODS,
        "more": more,
        "command": changes.command,
    }


@dataclass(slots=True)
class _Pieces:
    """Writes the executions one by one, until the file, of which `size` is taken, is full.

    `there` are those that were written, and `wrong` of them did not pass.
    """

    view: RunView
    size: int
    wrong: int = 0
    there: set[str] = field(default_factory=set)
    _texts: set[str] = field(default_factory=set)

    def __iter__(self) -> Iterator[Markup]:
        for execution in self._in_order():
            if self.size > _BYTES:
                break
            texts, is_wrong = set(self._texts), execution.status in _WRONG
            piece = self._piece(execution, opened=is_wrong and self.wrong < _OPENED)
            size = self.size + len(piece.encode())
            if size > _MOST_BYTES:
                # It is left out, and nothing may refer to the texts in it.
                self._texts = texts
                continue
            self.size = size
            self.there.add(execution.id)
            self.wrong += is_wrong
            yield piece

    def _in_order(self) -> Iterator[ExecutionView]:
        for wrong in (True, False):
            for test in self.view.tests():
                if wrong and not (test.counts.failed or test.counts.errored):
                    continue
                for execution in self.view.executions(test):
                    if (execution.status in _WRONG) is wrong:
                        yield execution

    def _piece(self, execution: ExecutionView, *, opened: bool) -> Markup:
        view = self.view
        attempts, mask = as_shown(view.attempts(execution))
        last, status = attempts[-1], status_word(execution)
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
                "once": self._once,
            },
        )

    def _once(self, text: str | None) -> tuple[bool, str | None]:
        """Return whether a text was written before, and its place if it may be referred to."""
        if text is None or len(text) < _REPEATED:
            return False, None
        place = "t" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
        is_known = place in self._texts
        self._texts.add(place)
        return is_known, place


def write_report(view: RunView, out: TextIO, options: ReportOptions) -> None:
    """Write the report."""
    out.writelines(render(*report_page(view, options)))
