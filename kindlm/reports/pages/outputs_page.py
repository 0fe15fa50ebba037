"""The page of the outputs of a run: a row for each test, a column for each target.

A cell has the output of the first repeat, or its error, and the tools that it called.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kindlm.errors import Err
from kindlm.history.masking import as_shown
from kindlm.history.rows import ExecutionView, TestView
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.reports.conversation import status_word
from kindlm.reports.pages.grid import rows_of, targets_of
from kindlm.reports.pages.html_document import Document
from kindlm.reports.pages.runs_page import page_number
from kindlm.reports.untrusted import one_line

_ROWS = 100
"""So many tests stand on one page."""


class OutputCell(NamedTuple):
    """What a test came to on a target: its first repeat, with texts as they may be shown."""

    test: TestView
    execution: ExecutionView
    tools: Sequence[str]


def outputs_page(db: sqlite3.Connection, wanted: str, query: Mapping[str, str]) -> Document | None:
    """Return the page of a run or a group of shards; `query` may hold page, from 1."""
    found = find_run_or_group(db, wanted)
    if isinstance(found, Err):
        return None
    view, page = RunView(db, found.value), page_number(query.get("page"))
    rows = rows_of(view)
    shown = list(rows.items())[(page - 1) * _ROWS : page * _ROWS]
    return Document(
        "outputs.html",
        f"Outputs of {one_line(view.id)}",
        {
            "view": view,
            "status": status_word,
            "targets": targets_of(rows),
            "rows": [
                (name, {target: _cell(view, test) for target, test in tests.items()})
                for name, tests in shown
            ],
            "before": (page - 1) * _ROWS,
            "page": page,
            "total": len(rows),
        },
        styles=("outputs", "pager"),
    )


def _cell(view: RunView, test: TestView) -> OutputCell | None:
    first = next(view.executions(test), None)
    if first is None:
        return None
    last = as_shown(view.attempts(first))[0][-1]
    return OutputCell(test, last.execution, [call.tool for call in last.tool_calls])
