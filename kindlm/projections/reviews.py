"""Table `reviews`: what people said of executions, of each person the last word.

Journals arrive in any order; what was said before stays in the log alone. The view `review_log`
shows reviews beside what was tested, with their notes.
"""

from __future__ import annotations

from collections.abc import Iterator

from kindlm.projections.naming import text_ref
from kindlm_store import Operation, Projection, RecordedEvent, Table, Upsert

__all__ = ["REVIEWS"]

_REVIEW_LOG = """
SELECT v.execution, v.run, s.name AS suite, e.test, e.target, e.repeat, e.status,
       v.passed, n.body AS note, v."by", v.at
  FROM reviews v
  -- a journal may be here before the run that it speaks of
  LEFT JOIN executions e ON e.id = v.execution
  LEFT JOIN suites s ON s.id = e.suite
  LEFT JOIN shown_texts n ON n.ref = v.note_ref
"""


def _recorded(event: RecordedEvent) -> Iterator[Operation]:
    data = event.data
    key = {"execution": f"{data['run']}-{data['execution']}", "by": data["by"]}
    row = {
        **key,
        "run": data["run"],
        "passed": data["passed"],
        "note_ref": text_ref(data, "note"),
        "at": event.at,
        "event": str(event.id),
    }
    yield Upsert("reviews", key, row, newest=("at", "event"))


REVIEWS = Projection(
    name="reviews",
    version=2,
    tables=(
        Table(
            "reviews",
            {
                "execution": "TEXT",
                "by": "TEXT",
                "run": "TEXT",
                "passed": "INTEGER",
                "note_ref": "TEXT",
                "at": "TEXT",
                "event": "TEXT",
            },
            primary_key=("execution", "by"),
            foreign_keys={
                "execution": ("executions", "id"),
                "run": ("runs", "id"),
                "note_ref": ("contents", "ref"),
            },
        ),
    ),
    handlers={"review.recorded": _recorded},
    views={"review_log": _REVIEW_LOG},
)
