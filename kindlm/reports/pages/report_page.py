"""A run as one file: its page, and each execution in short, those that failed first.

What is said again and again, such as a system text, stands in it once; other places lead there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from markupsafe import Markup

from kindlm.history.costs import paid_for_execution
from kindlm.history.masking import mask_of, masked
from kindlm.history.rows import ExecutionView
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports.assertion_text import assertion_name
from kindlm.reports.pages.conversation import attempts_of
from kindlm.reports.pages.document import Document, render_fragment
from kindlm.reports.pages.evidence import excerpts_of
from kindlm.reports.pages.links import NoLinks
from kindlm.reports.pages.run_page import SIGNS, STATUS_MOODS, run_document
from kindlm.reports.untrusted import one_line

__all__ = ["ReportLinks", "report_page"]

_BYTES = 1_700_000
"""From so many bytes on, executions that passed are only named: the file has to open quickly."""

_MOST_BYTES = 1_900_000
"""From so many on, they are only counted."""

_REPEATED = 160
"""Shorter texts are written again where they occur again."""

_OPENED = 3
"""So many executions that failed are unfolded from the start."""


class ReportLinks(NoLinks):
    """The links of the file: executions are places in it."""

    def execution(self, execution: str) -> str:
        """Return where an execution stands in the file."""
        return f"#{execution}"


def report_page(view: RunView) -> Document:
    """Return the page of a recorded run with all its executions."""
    whole = run_document(view)
    pieces = _Pieces(view)
    return replace(
        whole,
        template="report.html",
        values={
            **whole.values,
            "running": False,
            "executions": pieces,
            "left_out": lambda: pieces.left_out,
        },
        styles=(*whole.styles, "report"),
        scripts=(),
    )


@dataclass(frozen=True, slots=True)
class _Once:
    """Where a text stands: `known` if it was written before; `id` if it may be referred to."""

    known: bool
    id: str | None


@dataclass(slots=True)
class _Pieces:
    """Writes the executions one by one; `left_out` counts those that are not even named."""

    view: RunView
    left_out: int = 0
    _written: int = 0
    _texts: set[str] = field(default_factory=set)

    def __iter__(self) -> Iterator[Markup]:
        opened = 0
        for execution in self._in_order():
            wrong = execution.status in (Status.FAILED, Status.ERRORED)
            if self._written > _MOST_BYTES and not wrong:
                self.left_out += 1
                continue
            if self._written > _BYTES and not wrong:
                piece = _named(execution)
            else:
                piece = self._piece(execution, opened=wrong and opened < _OPENED)
            opened += wrong
            self._written += len(piece.encode())
            yield piece

    def _in_order(self) -> Iterator[ExecutionView]:
        for wrong in (True, False):
            for test in self.view.tests():
                if wrong and not (test.counts.failed or test.counts.errored):
                    continue
                for execution in self.view.executions(test):
                    if (execution.status in (Status.FAILED, Status.ERRORED)) is wrong:
                        yield execution

    def _piece(self, execution: ExecutionView, *, opened: bool) -> Markup:
        view = self.view
        assertions, tools = view.assertions(execution), view.tool_calls(execution)
        mask = mask_of(execution, assertions, tools)
        status = execution.status.value if execution.status else "not finished"
        return render_fragment(
            "report_execution.html",
            {
                "id": execution.id,
                "execution": execution,
                "paid": paid_for_execution(view.db, execution.id),
                "opened": opened,
                "mood": STATUS_MOODS.get(status, "unsure"),
                "sign": SIGNS.get(status, "·"),
                "signs": SIGNS,
                "moods": {**STATUS_MOODS, "inconclusive": "unsure"},
                "error": mask.text(execution.error),
                "checks": [masked(assertion, mask) for assertion in assertions],
                "name": assertion_name,
                "excerpts": lambda check: list(excerpts_of(check, execution, tools, mask)),
                "attempts": attempts_of(
                    view.first_messages(execution),
                    view.calls(execution),
                    view.all_tool_calls(execution),
                    mask,
                ),
                "once": self._once,
            },
        )

    def _once(self, text: str | None) -> _Once:
        if text is None or len(text) < _REPEATED:
            return _Once(known=False, id=None)
        identity = "t" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
        known = identity in self._texts
        self._texts.add(identity)
        return _Once(known, identity)


def _named(execution: ExecutionView) -> Markup:
    status = execution.status.value if execution.status else "not finished"
    return Markup('<p class="x" id="{}"><b class="{}">{}</b> {} <i>{} #{}</i></p>').format(
        one_line(execution.id),
        STATUS_MOODS.get(status, "unsure"),
        SIGNS.get(status, "·"),
        one_line(execution.test),
        one_line(execution.target),
        execution.repeat,
    )
