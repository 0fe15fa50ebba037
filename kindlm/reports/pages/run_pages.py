"""The pages of a run: one with its verdict and tests, one with the outputs of its tests.

Both have a row for each test and a column for each target. A cell of `run_page` shows the repeats
of the test. A cell of `outputs_page` shows the output or error of the first repeat, and its tools.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kindlm.errors import Err, ErrorCode
from kindlm.history import queries
from kindlm.history.groups import Group
from kindlm.history.masking import as_shown
from kindlm.history.rows import ExecutionView, TestView
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports import facts
from kindlm.reports.causes import causes_of
from kindlm.reports.conversation import status_word
from kindlm.reports.figures import comparison, points
from kindlm.reports.pages.html_document import Document, notice_page, page_number
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
SELECT e.id, e.test, e.target, e.repeat,
       (SELECT sum(c.cost_usd) FROM counted_calls c WHERE c.execution = e.id) AS cost_usd
  FROM executions e
 WHERE e.run IN $ids AND e.cost_usd > 0
   AND EXISTS (SELECT * FROM provider_calls c WHERE c.execution = e.id AND c.cost_usd > 0)
 ORDER BY cost_usd DESC, e.number LIMIT 5
"""

_ORDER = (Status.ERRORED, Status.FAILED, Status.PASSED, Status.SKIPPED)
"""The order of rows, by their worst test."""


class RowName(NamedTuple):
    """The test of a row; `shown_suite` includes the suite's file if its name is ambiguous."""

    project: str
    suite: str
    name: str
    shown_suite: str


_Rows = dict[RowName, dict[str, TestView]]
"""Tests by their targets, in the order of their suites."""


class GridCell(NamedTuple):
    """A test on a target, with its repeats; the status of an unfinished one is null.

    `score` is the mean of their weighted scores, 0 to 1, None without any.
    """

    test: TestView
    executions: Sequence[sqlite3.Row]
    score: float | None


class Grid(NamedTuple):
    """One page of the tests of a run, failed ones first.

    `total` is the number of rows on all pages, `before` that on earlier ones. `slowest` and
    `dearest` are executions of the whole run.
    """

    targets: Sequence[str]
    rows: Sequence[tuple[RowName, dict[str, GridCell]]]
    total: int
    before: int
    slowest: Sequence[sqlite3.Row]
    dearest: Sequence[sqlite3.Row]

    @property
    def after(self) -> int:
        """The number of rows on later pages."""
        return max(self.total - self.before - len(self.rows), 0)


def read_grid(view: RunView, *, limit: int, offset: int = 0) -> Grid:
    """Return at most `limit` rows of the grid of a run, after the first `offset` ones."""

    def rank(row: tuple[RowName, dict[str, TestView]]) -> int:
        return min(_ORDER.index(test.status) for test in row[1].values())

    rows = dict(sorted(_rows_of(view).items(), key=rank))
    shown = list(rows.items())[offset : offset + limit]

    def cell(test: TestView) -> GridCell:
        key = (test.suite_id, test.name, test.target)
        score = view.db.execute(_SCORE, key).fetchone()[0]
        return GridCell(test, view.db.execute(queries.REPEATS, key).fetchall(), score)

    return Grid(
        targets=_targets_of(rows),
        rows=[(name, {target: cell(tests[target]) for target in tests}) for name, tests in shown],
        total=len(rows),
        before=min(offset, len(rows)),
        slowest=view.ask(_SLOWEST).fetchall(),
        dearest=view.ask(_DEAREST).fetchall(),
    )


def _rows_of(view: RunView) -> _Rows:
    suites = {part: suite.full_name for suite in view.suites for part in suite.parts}
    rows: _Rows = {}
    for test in view.tests():
        project, shown = view.projects[test.suite_id], suites[test.suite_id]
        rows.setdefault(RowName(project, test.suite, test.name, shown), {})[test.target] = test
    return rows


def _targets_of(rows: _Rows) -> list[str]:
    return list(dict.fromkeys(target for tests in rows.values() for target in tests))


_ROWS_PER_PAGE = 300
_OUTPUTS_PER_PAGE = 100

_REPEATS_PER_CELL = 100

_EXPLAINED = 50
"""How many failed tests are grouped by cause; the others only link to their executions."""


def run_page(db: sqlite3.Connection, wanted: str, query: Mapping[str, str]) -> Document | None:
    """Return the page of a run or a group of shards, None if no run has that name.

    If the shards of a group are not parts of one run, the page says why. `query` may have page.
    The page updates itself while the run is in progress.
    """
    found = find_run_or_group(db, wanted)
    if isinstance(found, Err):
        if found.error.code is ErrorCode.CONFIG_VALIDATION_ERROR:
            return notice_page(
                "These shards are not one run", found.error.message, found.error.hint
            )
        return None
    return run_document(RunView(db, found.value), page_number(query))


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
    status = view.status
    grid = read_grid(view, limit=rows, offset=(page - 1) * rows)
    cells = (cell.test for _, cells in grid.rows for cell in cells.values())
    wrong = [test for test in cells if facts.is_wrong(test)]
    running = status == "running"
    notes = [] if view.shard is None else [facts.describe_shard(view.shard)]
    if isinstance(view.group, Group):
        notes += facts.describe_group(view.group)[1:]  # the page lists the shards
    if (then := facts.then_text(view)) is not None:
        notes.append(then)
    if (problem := view.why_not_compared) is not None:
        notes.append(f"Not compared: {problem.message}")
    notes += [
        f"{number} of {suite} skipped: {reason}" for suite, reason, number in view.skip_reasons()
    ]
    return Document(
        "run.html",
        f"{facts.verdict_of(view).word}: {one_line(view.id)}",
        {
            "view": view,
            "info": view.info,
            "status": status,
            "running": running,
            "verdict": facts.verdict_of(view),
            "notes": notes,
            "totals": list(facts.totals_of(view)),
            "changes": changes,
            "before": before.id if (before := view.run_before) else None,
            "grid": grid,
            "page": page,
            "rows": rows,
            "repeats": repeats,
            "causes": causes_of(view, wrong[:_EXPLAINED]),
            "unexplained": max(len(wrong) - _EXPLAINED, 0),
            "comparison": comparison,
            "points": points,
        },
        styles=("run", "checks", "pager"),
        scripts=("live",) if running else (),
    )


class OutputCell(NamedTuple):
    """The first repeat of a test on a target, masked, with the tools that it called."""

    test: TestView
    execution: ExecutionView
    tools: Sequence[str]


def outputs_page(db: sqlite3.Connection, wanted: str, query: Mapping[str, str]) -> Document | None:
    """Return the outputs of a run or a group of shards; `query` may have page."""
    found = find_run_or_group(db, wanted)
    if isinstance(found, Err):
        return None
    view, page = RunView(db, found.value), page_number(query)
    rows = _rows_of(view)
    before = (page - 1) * _OUTPUTS_PER_PAGE
    shown = list(rows.items())[before : before + _OUTPUTS_PER_PAGE]
    return Document(
        "outputs.html",
        f"Outputs of {one_line(view.id)}",
        {
            "view": view,
            "status": status_word,
            "targets": _targets_of(rows),
            "rows": [
                (name, {target: _output_cell(view, test) for target, test in tests.items()})
                for name, tests in shown
            ],
            "before": before,
            "page": page,
            "total": len(rows),
        },
        styles=("outputs", "pager"),
    )


def _output_cell(view: RunView, test: TestView) -> OutputCell | None:
    first = next(view.executions(test), None)
    if first is None:
        return None
    last = as_shown(view.attempts(first))[0][-1]
    return OutputCell(test, last.execution, [call.tool for call in last.tool_calls])
