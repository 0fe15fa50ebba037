"""Answers that tools gave in earlier runs, to be given again as `cassette` of a tool asks."""

from __future__ import annotations

import sqlite3

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.json_text import read_json
from kindlm.history.run_names import find_run
from kindlm.suite import RecordedAnswer

__all__ = ["cassette_run", "recorded_answers"]

# A run that executed nothing of the suite, since it crashed before or was about other tests, stands
# for nothing. Its label may be that of an earlier run which does.
_RUN = """
SELECT l.run
  FROM run_list l JOIN runs r ON r.id = l.run
 WHERE (l.run = :run
        OR (:run = 'latest' AND r.ended = 'finished' AND r.mode = 'live')
        OR (:run <> 'latest' AND l.label = :run))
   AND EXISTS (
         SELECT 1 FROM suites s JOIN executions e ON e.suite = s.id
          WHERE s.run = l.run AND s.project = :project AND s.name = :suite
            AND e.status IS NOT 'skipped')
 ORDER BY l.run = :run DESC, l.started_at DESC, l.run
 LIMIT 1
"""

# Of one execution, the first that passed or else the first: other repeats may have gone another
# way, and their answers do not belong into one conversation. What a call got that no answer was
# meant for is no answer of the tool.
_ANSWERS = """
SELECT a.body AS arguments, r.body AS response
  FROM tool_calls t
  LEFT JOIN contents a ON a.ref = t.arguments_ref
  LEFT JOIN contents r ON r.ref = t.response_ref
 WHERE t.tool = :tool AND (t.execution, t.attempt) = (
         SELECT e.source, e.source_attempt
           FROM executions e
           JOIN suites s ON s.id = e.suite
           JOIN tool_calls c ON c.execution = e.source AND c.attempt = e.source_attempt
          WHERE s.run = :run AND s.project = :project AND s.name = :suite
            AND e.test = :test AND c.tool = :tool
          ORDER BY e.status IS NOT 'passed', e.number
          LIMIT 1)
   AND NOT EXISTS (
         SELECT 1 FROM json_each(coalesce(t.problems, '[]')) p
          WHERE json_extract(p.value, '$.kind') = 'unmatched')
 ORDER BY t.position
"""


def cassette_run(db: sqlite3.Connection, wanted: str, project: str, suite: str) -> Result[str]:
    """Return the run that a cassette names: one that has executed tests of the suite.

    `latest` is the newest of them that has finished; of several with one label it is the newest.
    """
    named = {"run": wanted, "project": project, "suite": suite}
    found = db.execute(_RUN, named).fetchone()
    if found is None and wanted != "latest":
        beginning = find_run(db, wanted)
        if isinstance(beginning, Err):
            return beginning
        found = db.execute(_RUN, {**named, "run": beginning.value}).fetchone()
    return Err(_executed_nothing(wanted, suite)) if found is None else Ok(found[0])


def recorded_answers(
    db: sqlite3.Connection, run: str, *, project: str, suite: str, test: str, tool: str
) -> tuple[RecordedAnswer, ...]:
    """Return what a tool was called with and answered in a test of a run, in order.

    Calls whose arguments were no JSON object, calls that no answer was meant for, and answers that
    were purged are left out.
    """
    names = {"run": run, "project": project, "suite": suite, "test": test, "tool": tool}
    answers: list[RecordedAnswer] = []
    for arguments, response in db.execute(_ANSWERS, names):
        parsed = read_json(arguments)
        if isinstance(parsed, dict) and response is not None:
            answers.append(RecordedAnswer(parsed, read_json(response)))
    return tuple(answers)


def _executed_nothing(wanted: str, suite: str) -> KindlmError:
    which = "No finished run" if wanted == "latest" else f"No run {wanted!r}"
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"{which} has executed tests of the suite {suite!r}.",
        "List the recorded runs: kindlm runs",
    )
