"""The page of a run: its verdict, its gates, its tests on every target, failures first."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from kindlm.errors import Err, ErrorCode
from kindlm.history.groups import Group
from kindlm.history.run_grid import read_grid
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.reports.facts import (
    describe_group,
    describe_shard,
    findings_of,
    then_text,
    totals_of,
    verdict_of,
)
from kindlm.reports.figures import comparison, points
from kindlm.reports.pages.html_document import Document, notice_page
from kindlm.reports.pages.runs_page import page_number
from kindlm.reports.untrusted import one_line

_ROWS = 300
"""So many tests stand on one page, those that failed first."""

_REPEATS = 100
"""So many repeats of a test on a target stand there."""

_EXPLAINED = 50
"""So many cells say why they failed; the others lead to their executions."""


def run_page(db: sqlite3.Connection, wanted: str, query: Mapping[str, str]) -> Document | None:
    """Return the page of a run or a group of shards, None if no run has that name.

    Of a group whose shards are not parts of one run it says why.

    `query` may hold page, from 1: which of the tests are shown.
    While a run goes on, the page renews itself.
    """
    found = find_run_or_group(db, wanted)
    if isinstance(found, Err):
        if found.error.code is ErrorCode.CONFIG_VALIDATION_ERROR:
            return notice_page(
                "These shards are not one run", found.error.message, found.error.hint
            )
        return None
    return run_document(RunView(db, found.value), page_number(query.get("page")))


def run_document(
    view: RunView, page: int = 1, *, rows: int = _ROWS, repeats: int = _REPEATS
) -> Document:
    """Return the page of a run that is recorded: so many tests, with so many repeats of each."""
    status = view.status
    grid = read_grid(view, limit=rows, offset=(page - 1) * rows)
    explained = iter(range(_EXPLAINED))
    reasons = {
        (row.suite, row.name, target): findings_of(view, cell.test)
        for row in grid.rows
        for target, cell in row.cells.items()
        if (cell.test.counts.failed or cell.test.counts.errored)
        and next(explained, None) is not None
    }
    running = status == "running"
    return Document(
        "run.html",
        f"{verdict_of(view).word}: {one_line(view.id)}",
        {
            "view": view,
            "info": view.info,
            "status": status,
            "running": running,
            "verdict": verdict_of(view),
            "notes": list(_notes(view)),
            "totals": list(totals_of(view)),
            "before": view.run_before,
            "grid": grid,
            "page": page,
            "rows": rows,
            "repeats": repeats,
            "projects": {suite.name: suite.project or "" for suite in view.suites},
            "reasons": reasons,
            "comparison": comparison,
            "points": points,
        },
        styles=("run", "pager"),
        scripts=("live",) if running else (),
    )


def _notes(view: RunView) -> list[str]:
    notes = [] if view.shard is None else [describe_shard(view.shard)]
    if isinstance(view.group, Group):
        notes += describe_group(view.group)[1:]  # the shards stand on the page
    if (then := then_text(view)) is not None:
        notes.append(then)
    notes += [
        f"{number} of {suite} skipped: {reason}" for suite, reason, number in view.skip_reasons()
    ]
    return notes
