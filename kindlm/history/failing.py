"""Which tests of a suite failed when they last ran."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from kindlm.history.run_view import RunView
from kindlm.outcome import Status

__all__ = ["failing_tests"]

_LOOKED_BACK = 100
"""So many runs of a suite are searched; a test that none of them ran is not known to fail."""

_RUNS = """
SELECT s.run, s.id
  FROM suites s JOIN runs r ON r.id = s.run
 WHERE s.name = ? AND s.project = ? AND r.mode = 'live' AND s.error_code IS NULL
 ORDER BY r.started_at DESC, r.id
 LIMIT ?
"""


def failing_tests(
    db: sqlite3.Connection, project: str, suite: str, wanted: Collection[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Return those of `wanted`, tests by name and target, whose last result is no pass.

    Each test is looked up in the last run that ran it, so that running a few tests does not make
    the others forgotten. Runs that were stopped count as far as they went.
    """
    open_questions = set(wanted)
    failing: set[tuple[str, str]] = set()
    for run, identity in db.execute(_RUNS, (suite, project, _LOOKED_BACK)).fetchall():
        if not open_questions:
            break
        for test in RunView(db, run).tests(identity):
            key = (test.name, test.target)
            if key not in open_questions or not test.counts.tested:
                continue
            open_questions.discard(key)
            if test.status in (Status.FAILED, Status.ERRORED):
                failing.add(key)
    return failing
