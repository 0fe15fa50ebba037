"""The tests of a run as a grid: a row for each test, a cell for each target, its repeats inside."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from kindlm.history.rows import TestView
from kindlm.history.run_view import RunView
from kindlm.outcome import Status

__all__ = ["Grid", "GridCell", "GridExecution", "GridRow", "read_grid"]

_EXECUTIONS = """
SELECT id, suite, test, target, repeat, status, latency_ms, cost_usd
  FROM executions WHERE run IN $ids
"""

_ORDER = (Status.ERRORED, Status.FAILED, Status.PASSED, Status.SKIPPED)
"""What a reader looks for first stands first."""


@dataclass(frozen=True, slots=True)
class GridExecution:
    """An execution in the grid; `status` is None while it runs, and if it never finished."""

    id: str
    test: str
    target: str
    repeat: int
    status: str | None
    latency_ms: float | None
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class GridCell:
    """A test on a target, with its repeats."""

    test: TestView
    executions: tuple[GridExecution, ...]


@dataclass(frozen=True, slots=True)
class GridRow:
    """A test of a suite, with a cell for each target that it ran on."""

    suite: str
    name: str
    cells: Mapping[str, GridCell]

    @property
    def worst(self) -> Status:
        """The status of the cell to look at first."""
        return min((cell.test.status for cell in self.cells.values()), key=_ORDER.index)


@dataclass(frozen=True, slots=True)
class Grid:
    """Some of the tests of a run, those that failed first; `left_out` are not shown.

    `slowest` and `dearest` are executions of the whole run.
    """

    targets: tuple[str, ...]
    rows: tuple[GridRow, ...]
    left_out: int
    slowest: tuple[GridExecution, ...]
    dearest: tuple[GridExecution, ...]


def read_grid(view: RunView, *, limit: int, top: int = 5) -> Grid:
    """Return the grid of a run with `limit` rows at most.

    Two statements, however many tests there are.
    """
    tests: dict[tuple[str, str], dict[str, TestView]] = {}
    for test in view.tests():
        tests.setdefault((test.suite, test.name), {})[test.target] = test
    executions: dict[tuple[str, str, str], list[GridExecution]] = {}
    rows = view.over_runs(_EXECUTIONS)
    every = [(row["suite"], _execution(row)) for row in rows]
    for suite, execution in every:
        executions.setdefault((suite, execution.test, execution.target), []).append(execution)
    ordered = sorted(
        (_row(suite, name, targets, executions) for (suite, name), targets in tests.items()),
        key=lambda row: _ORDER.index(row.worst),
    )
    return Grid(
        targets=tuple(dict.fromkeys(target for row in ordered for target in row.cells)),
        rows=tuple(ordered[:limit]),
        left_out=max(len(ordered) - limit, 0),
        slowest=_top([each for _, each in every], "latency_ms", top),
        dearest=_top([each for _, each in every], "cost_usd", top),
    )


def _row(
    suite: str,
    name: str,
    targets: Mapping[str, TestView],
    executions: Mapping[tuple[str, str, str], list[GridExecution]],
) -> GridRow:
    cells = {}
    for target, test in targets.items():
        found = executions.get((test.suite_id, name, target), [])
        cells[target] = GridCell(test, tuple(sorted(found, key=lambda each: each.repeat)))
    return GridRow(suite, name, cells)


def _top(executions: Sequence[GridExecution], field: str, number: int) -> tuple[GridExecution, ...]:
    known = [each for each in executions if getattr(each, field)]
    return tuple(nlargest(number, known, key=lambda each: getattr(each, field)))


def _execution(row: sqlite3.Row) -> GridExecution:
    return GridExecution(
        row["id"],
        row["test"],
        row["target"],
        row["repeat"],
        row["status"],
        row["latency_ms"],
        row["cost_usd"],
    )
