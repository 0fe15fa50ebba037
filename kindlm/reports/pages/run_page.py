"""The page of a run: its verdict, its gates, and a grid of its tests, failures first.

The grid has a row for each test and a cell for each target, with its repeats inside. All tests are
ranked, by their counts alone. Only the rows that are wanted are read as a whole, with their
executions.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from kindlm.dataclass import dataclass
from kindlm.errors import Err, ErrorCode
from kindlm.history import queries
from kindlm.history.groups import Group
from kindlm.history.queries import value_of
from kindlm.history.rows import TestView, counts_of, scores_of, test_of
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.history.verdict import test_status
from kindlm.outcome import Status
from kindlm.reports.causes import causes_of
from kindlm.reports.facts import describe_group, describe_shard, then_text, totals_of, verdict_of
from kindlm.reports.figures import comparison, points
from kindlm.reports.pages.html_document import Document, notice_page
from kindlm.reports.pages.runs_page import page_number
from kindlm.reports.untrusted import one_line

# What was paid for an execution: all its attempts, judges included.
_COLUMNS = """
       e.id, e.suite, e.test, e.target, e.repeat, e.status, e.latency_ms,
       (SELECT sum(c.cost_usd) FROM provider_calls c WHERE c.execution = e.id) AS cost_usd
"""

_EXECUTIONS = f"""
SELECT {_COLUMNS}
  FROM json_each(?) wanted
  JOIN executions e ON e.suite = wanted.value ->> 0 AND e.test = wanted.value ->> 1
 ORDER BY e.suite, e.test, e.target, e.repeat
"""  # noqa: S608 (constants of this module)

_SCORES = """
SELECT e.suite, e.test, e.target, avg(a.score) AS score
  FROM json_each(?) wanted
  JOIN executions e ON e.suite = wanted.value ->> 0 AND e.test = wanted.value ->> 1
  JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
 WHERE a.kind = 'weighted_score' AND a.score IS NOT NULL
 GROUP BY e.suite, e.test, e.target
"""

_SLOWEST = f"""
SELECT {_COLUMNS} FROM executions e
 WHERE e.run IN $ids AND e.latency_ms > 0 ORDER BY e.latency_ms DESC, e.number LIMIT 5
"""  # noqa: S608 (constants of this module)

_DEAREST = f"""
SELECT {_COLUMNS} FROM executions e
 WHERE e.run IN $ids AND e.cost_usd > 0
   AND EXISTS (SELECT * FROM provider_calls c WHERE c.execution = e.id AND c.cost_usd > 0)
 ORDER BY cost_usd DESC, e.number LIMIT 5
"""  # noqa: S608 (constants of this module)

_ORDER = (Status.ERRORED, Status.FAILED, Status.PASSED, Status.SKIPPED)
"""What a reader looks for first stands first."""


@dataclass(frozen=True, slots=True)
class GridExecution:
    """An execution in the grid; `status` is None while it runs, and if it never finished.

    `cost_usd` is all that is known to have been paid for it.
    """

    id: str
    test: str
    target: str
    repeat: int
    status: str | None
    latency_ms: float | None
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class GridCell:
    """A test on a target, with its repeats.

    `score` is the mean of their weighted scores, 0 to 1, None where there are none.
    """

    test: TestView
    executions: tuple[GridExecution, ...]
    score: float | None


@dataclass(frozen=True, slots=True)
class GridRow:
    """A test of a suite, with a cell for each target that it ran on.

    `shown_suite` is the name of the suite, with its file where another suite has the same name.
    """

    project: str
    suite: str
    name: str
    shown_suite: str
    cells: Mapping[str, GridCell]


@dataclass(frozen=True, slots=True)
class Grid:
    """Some of the tests of a run, those that failed first: `total` there are, `before` these.

    `slowest` and `dearest` are executions of the whole run.
    """

    targets: tuple[str, ...]
    rows: tuple[GridRow, ...]
    total: int
    before: int
    slowest: tuple[GridExecution, ...]
    dearest: tuple[GridExecution, ...]

    @property
    def after(self) -> int:
        """How many tests come after these."""
        return max(self.total - self.before - len(self.rows), 0)


def read_grid(view: RunView, *, limit: int, offset: int = 0) -> Grid:
    """Return the grid of a run with `limit` rows at most, after the first `offset` ones.

    As many statements however many tests there are.
    """
    tests: dict[tuple[str, str, str], dict[str, sqlite3.Row]] = {}
    for row in view.over_suites(queries.TESTS):
        name = view.projects[row["suite"]], row["suite_name"], row["test"]
        tests.setdefault(name, {})[row["target"]] = row
    ordered = sorted(tests.items(), key=lambda test: _rank(test[1].values()))
    shown = ordered[offset : offset + limit]
    keys = {(row["suite"], row["test"]) for _, cells in shown for row in cells.values()}
    wanted = (json.dumps(sorted(keys)),)
    held: dict[tuple[str, ...], list[GridExecution]] = {}
    for row in view.db.execute(_EXECUTIONS, wanted):
        held.setdefault(_place(row), []).append(value_of(GridExecution, row))
    scores = {_place(row): row["score"] for row in view.db.execute(_SCORES, wanted)}

    suites = {part: suite.full_name for suite in view.suites for part in suite.parts}

    def cell(row: sqlite3.Row) -> GridCell:
        place = _place(row)
        return GridCell(test_of(row), tuple(held.get(place, ())), scores.get(place))

    return Grid(
        targets=tuple(dict.fromkeys(target for _, cells in ordered for target in cells)),
        rows=tuple(
            GridRow(
                *name,
                suites[next(iter(cells.values()))["suite"]],
                {target: cell(row) for target, row in cells.items()},
            )
            for name, cells in shown
        ),
        total=len(ordered),
        before=min(offset, len(ordered)),
        slowest=_top(view, _SLOWEST),
        dearest=_top(view, _DEAREST),
    )


def _place(row: sqlite3.Row) -> tuple[str, ...]:
    return row["suite"], row["test"], row["target"]


def _rank(cells: Iterable[sqlite3.Row]) -> int:
    """Return where a test stands: by the cell to look at first."""
    statuses = (test_status(counts_of(row), row["pass_rate_min"], scores_of(row)) for row in cells)
    return min(map(_ORDER.index, statuses))


def _top(view: RunView, query: str) -> tuple[GridExecution, ...]:
    return tuple(value_of(GridExecution, row) for row in view.ask(query))


_ROWS = 300
"""So many tests stand on one page, those that failed first."""

_REPEATS = 100
"""So many repeats of a test on a target stand there."""

_EXPLAINED = 50
"""So many tests on a target are grouped by why they failed; the others lead to their executions."""


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
    view: RunView,
    page: int = 1,
    *,
    rows: int = _ROWS,
    repeats: int = _REPEATS,
    changes: Mapping[str, Any] | None = None,
) -> Document:
    """Return the page of a run that is recorded: so many tests, with so many repeats of each.

    `changes` are those since the run before, where no link leads to them.
    """
    status = view.status
    grid = read_grid(view, limit=rows, offset=(page - 1) * rows)
    cells = (cell.test for row in grid.rows for cell in row.cells.values())
    wrong = [
        test for test in cells if test.counts.failed or test.counts.errored or test.broken_limits
    ]
    running = status == "running"
    notes = [] if view.shard is None else [describe_shard(view.shard)]
    if isinstance(view.group, Group):
        notes += describe_group(view.group)[1:]  # the shards stand on the page
    if (then := then_text(view)) is not None:
        notes.append(then)
    if (problem := view.why_not_compared) is not None:
        notes.append(f"Not compared: {problem.message}")
    notes += [
        f"{number} of {suite} skipped: {reason}" for suite, reason, number in view.skip_reasons()
    ]
    return Document(
        "run.html",
        f"{verdict_of(view).word}: {one_line(view.id)}",
        {
            "view": view,
            "info": view.info,
            "status": status,
            "running": running,
            "verdict": verdict_of(view),
            "notes": notes,
            "totals": list(totals_of(view)),
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
