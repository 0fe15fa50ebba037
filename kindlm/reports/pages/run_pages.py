"""The pages of a run: one with its verdict and tests, one with the outputs of its tests.

Both have a row for each test and a column for each target. A cell of `run_page` shows the repeats
of the test. A cell of `outputs_page` shows the output or error of the first repeat, and its tools.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kindlm.errors import Err
from kindlm.history.masking import as_shown
from kindlm.history.rows import TestView
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports import facts
from kindlm.reports.causes import causes_of
from kindlm.reports.conversation import status_word
from kindlm.reports.figures import comparison, points
from kindlm.reports.pages.html_document import Document, PageRequest, notice_page
from kindlm.reports.untrusted import one_line

_SCORE = """
SELECT avg(a.score)
  FROM executions e
  JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
 WHERE e.suite = ? AND e.test = ? AND e.target = ? AND a.kind = 'weighted_score'
"""

_SLOWEST = """
SELECT id, test, target, repeat, latency_ms FROM executions
 WHERE run IN $ids AND latency_ms > 0 ORDER BY latency_ms DESC, number LIMIT 5
"""

# The cost of an execution is that of all its attempts, including judges.
_DEAREST = """
SELECT e.id, e.test, e.target, e.repeat, sum(c.cost_usd) AS cost_usd,
       total(c.is_unknown) AS unknown
  FROM executions e
 CROSS JOIN counted_calls c ON c.execution = e.id
 WHERE e.run IN $ids
 GROUP BY e.id
HAVING sum(c.cost_usd) > 0
 ORDER BY sum(c.cost_usd) DESC, e.number LIMIT 5
"""

_ORDER = (Status.ERRORED, Status.FAILED, Status.PASSED, Status.SKIPPED)
"""The order of rows, by their worst test."""


class RowName(NamedTuple):
    """The test of a row; `shown_suite` includes the suite's file if its name is ambiguous."""

    project: str
    suite: str
    name: str
    shown_suite: str


class Grid(NamedTuple):
    """One page of the tests of a run: for each test, a cell for each of its targets.

    `total` is the number of rows on all pages, `before` that on earlier ones.
    """

    targets: Sequence[str]
    rows: Sequence[tuple[RowName, dict[str, Any]]]
    total: int
    before: int

    @property
    def after(self) -> int:
        """The number of rows on later pages."""
        return max(self.total - self.before - len(self.rows), 0)


def read_grid(
    view: RunView,
    cell: Callable[[TestView], Any],
    *,
    limit: int,
    page: int = 1,
    failed_first: bool = False,
) -> Grid:
    """Return a page of at most `limit` tests of a run; `cell` makes the cell of a test."""
    suites = {part: suite for suite in view.suites for part in suite.parts}
    tests = dict[RowName, dict[str, TestView]]()
    for test in view.tests():
        suite = suites[test.suite_id]
        name = RowName(suite.project or "", test.suite, test.name, suite.full_name)
        tests.setdefault(name, {})[test.target] = test
    rows = list(tests.items())
    if failed_first:
        rows.sort(key=lambda row: min(_ORDER.index(test.status) for test in row[1].values()))
    before = min((page - 1) * limit, len(rows))
    return Grid(
        list(dict.fromkeys(target for _, targets in rows for target in targets)),
        [
            (name, {target: cell(test) for target, test in targets.items()})
            for name, targets in rows[before : before + limit]
        ],
        len(rows),
        before,
    )


_ROWS_PER_PAGE = 300
_OUTPUTS_PER_PAGE = 100

_REPEATS_PER_CELL = 100

_EXPLAINED = 50
"""How many failed tests are grouped by cause; the others only link to their executions."""


def run_page(db: sqlite3.Connection, asked: PageRequest) -> Document:
    """Return the page of a run or a group of shards, or why there is none.

    The page updates itself while the run is in progress.
    """
    found = find_run_or_group(db, asked.name)
    if isinstance(found, Err):
        return notice_page("Not found", found.error.message, found.error.hint, status=404)
    return run_document(RunView(db, found.value), asked.page)


def run_document(
    view: RunView,
    page: int = 1,
    *,
    rows: int = _ROWS_PER_PAGE,
    repeats: int = _REPEATS_PER_CELL,
    changes: Mapping[str, Any] | None = None,
) -> Document:
    """Return the page of a recorded run, with limits for rows and for the repeats in a cell.

    `changes` are those since the previous run, for a page that cannot link to a comparison.
    """

    def cell(test: TestView) -> dict[str, Any]:
        key = (test.suite_id, test.name, test.target)
        return {
            "test": test,
            "executions": view.repeats(*key),
            "score": view.db.execute(_SCORE, key).fetchone()[0],
        }

    status = view.status
    grid = read_grid(view, cell, limit=rows, page=page, failed_first=True)
    tests = (cell["test"] for _, cells in grid.rows for cell in cells.values())
    explained = [test for test in tests if facts.is_wrong(test)][:_EXPLAINED]
    running = status == "running"
    before = view.before
    return Document(
        "run.html",
        f"{facts.verdict_of(view).word}: {one_line(view.id)}",
        {
            "view": view,
            "info": view.info,
            "status": status,
            "running": running,
            "verdict": facts.verdict_of(view),
            "notes": list(facts.notes_of(view)),
            "totals": list(facts.totals_of(view)),
            "changes": changes,
            "before": before.id if isinstance(before, RunView) else None,
            "grid": grid,
            "slowest": view.ask(_SLOWEST).fetchall(),
            "dearest": view.ask(_DEAREST).fetchall(),
            "page": page,
            "rows": rows,
            "repeats": repeats,
            "causes": causes_of(view, explained),
            "unexplained": sum(map(facts.is_wrong, view.tests())) - len(explained),
            "comparison": comparison,
            "points": points,
        },
        styles=("run", "checks", "pager"),
        scripts=("live",) if running else (),
    )


def outputs_page(db: sqlite3.Connection, asked: PageRequest) -> Document | None:
    """Return the outputs of a run or a group of shards, None if no run has that name."""
    found = find_run_or_group(db, asked.name)
    if isinstance(found, Err):
        return None
    view = RunView(db, found.value)

    def cell(test: TestView) -> dict[str, Any] | None:
        first = next(view.executions(test), None)
        if first is None:
            return None
        last = as_shown(view.attempts(first))[0][-1]
        tools = [call.tool for call in last.tool_calls]
        return {"test": test, "execution": last.execution, "tools": tools}

    return Document(
        "outputs.html",
        f"Outputs of {one_line(view.id)}",
        {
            "view": view,
            "status": status_word,
            "grid": read_grid(view, cell, limit=_OUTPUTS_PER_PAGE, page=asked.page),
            "page": asked.page,
        },
        styles=("outputs", "pager"),
    )
