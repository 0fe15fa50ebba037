"""The page of the outputs of a run: a row for each test, a column for each target.

A cell has the output of the first repeat, or its error, and the tools that it called.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

from kindlm.dataclass import dataclass
from kindlm.errors import Err
from kindlm.history import queries
from kindlm.history.masking import as_shown
from kindlm.history.rows import ExecutionView, TestView, execution_of
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.reports.conversation import status_word
from kindlm.reports.pages.grid import rows_of, targets_of
from kindlm.reports.pages.html_document import Document
from kindlm.reports.pages.runs_page import page_number
from kindlm.reports.untrusted import one_line

_ROWS = 100
"""So many tests stand on one page."""

_FIRST = """
SELECT e.id, min(e.repeat)
  FROM json_each(?) wanted
  JOIN executions e ON e.suite = wanted.value ->> 0 AND e.test = wanted.value ->> 1
   AND e.target = wanted.value ->> 2
 GROUP BY e.suite, e.test, e.target
"""

_OF_IDS = " WHERE e.id IN (SELECT value FROM json_each(?))"

_CALLED = """
SELECT e.id, t.tool
  FROM json_each(?) wanted
  JOIN executions e ON e.id = wanted.value
  JOIN tool_calls t ON t.execution = e.source
   AND t.attempt = iif(e.source = e.id, e.attempt, e.source_attempt)
 ORDER BY e.id, t.position
"""

# Only where a check found personal data is anything to be masked.
_MASKED = """
SELECT DISTINCT a.execution
  FROM json_each(?) wanted
  JOIN assertions a ON a.execution = wanted.value AND a.evidence LIKE '%"excerpt"%'
"""


@dataclass(frozen=True, slots=True)
class OutputCell:
    """What a test came to on a target: its first repeat, with texts as they may be shown."""

    test: TestView
    execution: ExecutionView
    tools: tuple[str, ...]


def outputs_page(db: sqlite3.Connection, wanted: str, query: Mapping[str, str]) -> Document | None:
    """Return the page of a run or a group of shards; `query` may hold page, from 1."""
    found = find_run_or_group(db, wanted)
    if isinstance(found, Err):
        return None
    view, page = RunView(db, found.value), page_number(query.get("page"))
    rows = rows_of(view)
    shown = list(rows.items())[(page - 1) * _ROWS : page * _ROWS]
    cells = _cells(view, [test for _, tests in shown for test in tests.values()])
    return Document(
        "outputs.html",
        f"Outputs of {one_line(view.id)}",
        {
            "view": view,
            "status": status_word,
            "targets": targets_of(rows),
            "rows": [
                (name, {target: cells.get(_key(test)) for target, test in tests.items()})
                for name, tests in shown
            ],
            "before": (page - 1) * _ROWS,
            "page": page,
            "total": len(rows),
        },
        styles=("outputs", "pager"),
    )


def _key(test: TestView | ExecutionView) -> tuple[str, str, str]:
    name = test.name if isinstance(test, TestView) else test.test
    return test.suite_id, name, test.target


def _cells(view: RunView, tests: list[TestView]) -> dict[tuple[str, str, str], OutputCell]:
    """Return the cells of tests; as many statements however many there are without findings."""
    keys = {_key(test): test for test in tests}
    first = json.dumps([row[0] for row in view.db.execute(_FIRST, (json.dumps(list(keys)),))])
    tools: dict[str, list[str]] = {}
    for execution, tool in view.db.execute(_CALLED, (first,)):
        tools.setdefault(execution, []).append(tool)
    masked = {row[0] for row in view.db.execute(_MASKED, (first,))}
    cells = {}
    for execution in map(execution_of, view.db.execute(queries.EXECUTIONS + _OF_IDS, (first,))):
        key, shown = _key(execution), execution
        if execution.id in masked:
            shown = as_shown(view.attempts(execution))[0][-1].execution
        cells[key] = OutputCell(keys[key], shown, tuple(tools.get(execution.id, ())))
    return cells
