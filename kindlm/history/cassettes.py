"""Answers that tools gave in earlier runs, to be given again as `cassette` of a tool asks."""

from __future__ import annotations

import sqlite3

from kindlm.errors import Result
from kindlm.history.json_text import read_json
from kindlm.history.runs import find_run, latest_finished
from kindlm.suite import RecordedAnswer

__all__ = ["cassette_run", "recorded_answers"]

# Of one execution, the first that passed or else the first: other repeats may have gone another
# way, and their answers do not belong into one conversation.
_ANSWERS = """
SELECT a.body AS arguments, r.body AS response
  FROM tool_calls t
  LEFT JOIN contents a ON a.ref = t.arguments_ref
  LEFT JOIN contents r ON r.ref = t.response_ref
 WHERE t.tool = :tool AND (t.execution, t.attempt) = (
         SELECT e.id, e.attempt
           FROM executions e
           JOIN suites s ON s.id = e.suite
           JOIN tool_calls c ON c.execution = e.id AND c.attempt = e.attempt
          WHERE e.run = :run AND s.name = :suite AND e.test = :test AND c.tool = :tool
          ORDER BY e.status IS NOT 'passed', e.number
          LIMIT 1)
 ORDER BY t.position
"""


def cassette_run(db: sqlite3.Connection, wanted: str, suite: str) -> Result[str]:
    """Return the run that a cassette names; `latest` is the last finished one of the suite."""
    if wanted == "latest":
        return latest_finished(db, suite)
    return find_run(db, wanted)


def recorded_answers(
    db: sqlite3.Connection, run: str, suite: str, test: str, tool: str
) -> tuple[RecordedAnswer, ...]:
    """Return what a tool was called with and answered in a test of a run, in order.

    Calls whose arguments were no JSON object, and answers that were purged, are left out.
    """
    rows = db.execute(_ANSWERS, {"run": run, "suite": suite, "test": test, "tool": tool})
    answers: list[RecordedAnswer] = []
    for arguments, response in rows:
        parsed = read_json(arguments)
        if isinstance(parsed, dict) and response is not None:
            answers.append(RecordedAnswer(parsed, read_json(response)))
    return tuple(answers)
