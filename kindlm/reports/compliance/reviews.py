"""What people said of the conversations of a suite."""

from __future__ import annotations

from typing import Any

from kindlm.history.queries import among
from kindlm.history.rows import SuiteView
from kindlm.history.run_view import RunView

_MOST = 200

_FROM = """
  FROM executions e
  JOIN reviews v ON v.execution = e.source
  LEFT JOIN shown_texts n ON n.ref = v.note_ref
 WHERE e.suite IN $ids
"""

_REVIEWS = f"""
SELECT e.id AS execution, e.test, e.target, e.repeat, e.status, v.passed, n.body AS note, v."by",
       v.at
  {_FROM}
 ORDER BY v.at, v.event
 LIMIT {_MOST}
"""

_COUNT = f"SELECT count(*) {_FROM}"


def read_reviews(view: RunView, suite: SuiteView) -> tuple[list[dict[str, Any]], int]:
    """Return what was said, the oldest first, and how much of it there is beyond that.

    Personal data that was found in a conversation is unreadable in the notes on it, as it is in
    other reports of the execution.
    """
    rows = [dict(row) for row in view.db.execute(*among(_REVIEWS, suite.parts))]
    total: int = view.db.execute(*among(_COUNT, suite.parts)).fetchone()[0]
    for row in rows:
        row["passed"] = bool(row["passed"])
        if row["note"] is not None:
            execution = view.execution(row["execution"])
            assert execution is not None
            row["note"] = view.shown_note(execution, row["note"])
    return rows, total - len(rows)
