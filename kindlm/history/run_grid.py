"""The tests of a run as a grid: a row for each test, a cell for each target, its repeats inside.

All tests are ranked, by their counts alone; only those of the rows that are wanted are read as a
whole, with their executions.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kindlm.history import queries
from kindlm.history.queries import value_of
from kindlm.history.rows import TestView, counts_of, scores_of, test_of
from kindlm.history.run_view import RunView
from kindlm.history.verdict import test_status
from kindlm.outcome import Status

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
 WHERE e.run IN $ids AND e.latency_ms > 0 ORDER BY e.latency_ms DESC, e.number LIMIT $top
"""  # noqa: S608 (constants of this module)

_DEAREST = f"""
SELECT {_COLUMNS} FROM executions e
 WHERE e.run IN $ids AND e.cost_usd > 0
   AND EXISTS (SELECT * FROM provider_calls c WHERE c.execution = e.id AND c.cost_usd > 0)
 ORDER BY cost_usd DESC, e.number LIMIT $top
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
    """A test of a suite, with a cell for each target that it ran on."""

    suite: str
    name: str
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


def read_grid(view: RunView, *, limit: int, offset: int = 0, top: int = 5) -> Grid:
    """Return the grid of a run with `limit` rows at most, after the first `offset` ones.

    As many statements however many tests there are.
    """
    tests: dict[tuple[str, str], dict[str, sqlite3.Row]] = {}
    for row in view.over_suites(queries.TESTS):
        tests.setdefault((row["suite_name"], row["test"]), {})[row["target"]] = row
    ordered = sorted(tests.items(), key=lambda test: _rank(test[1].values()))
    shown = ordered[offset : offset + limit]
    keys = {(row["suite"], row["test"]) for _, cells in shown for row in cells.values()}
    wanted = (json.dumps(sorted(keys)),)
    held: dict[tuple[str, ...], list[GridExecution]] = {}
    for row in view.db.execute(_EXECUTIONS, wanted):
        held.setdefault(_place(row), []).append(value_of(GridExecution, row))
    scores = {_place(row): row["score"] for row in view.db.execute(_SCORES, wanted)}

    def cell(row: sqlite3.Row) -> GridCell:
        place = _place(row)
        return GridCell(test_of(row), tuple(held.get(place, ())), scores.get(place))

    return Grid(
        targets=tuple(dict.fromkeys(target for _, cells in ordered for target in cells)),
        rows=tuple(
            GridRow(suite, name, {target: cell(row) for target, row in cells.items()})
            for (suite, name), cells in shown
        ),
        total=len(ordered),
        before=min(offset, len(ordered)),
        slowest=_top(view, _SLOWEST, top),
        dearest=_top(view, _DEAREST, top),
    )


def _place(row: sqlite3.Row) -> tuple[str, ...]:
    return row["suite"], row["test"], row["target"]


def _rank(cells: Iterable[sqlite3.Row]) -> int:
    """Return where a test stands: by the cell to look at first."""
    statuses = (test_status(counts_of(row), row["pass_rate_min"], scores_of(row)) for row in cells)
    return min(map(_ORDER.index, statuses))


def _top(view: RunView, query: str, number: int) -> tuple[GridExecution, ...]:
    rows = view.ask(query.replace("$top", str(number)))
    return tuple(value_of(GridExecution, row) for row in rows)
