"""Repeats that were added to the tests of a run later, by `kindlm settle`.

They are runs of their own, of mode `settled`, whose source is the run that they add to. Each repeat
counts as a look of its own, in the order of their numbers and not in that in which they ended: a
repeat that fails may well be the quicker one.

A repeat that ended with an error did not pass. But where nobody answered any more until the run
ended, the target was out of reach, which says nothing of how it answers: those do not count.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from kindlm.history.compared_attempts import Attempts
from kindlm.history.diff.values import QualifiedName
from kindlm.history.queries import among
from kindlm.history.statistics import Counts

__all__ = ["AddedRepeats", "read_added"]


def _added(attempts: Attempts) -> str:
    return f"""
SELECT s.project, s.name, e.test, e.target, e.repeat, {attempts.came_to("status")},
       e.number <= (SELECT max(l.number) FROM executions l
                     WHERE l.run = r.id AND (l.status IN ('passed', 'failed') OR l.answers > 0))
  FROM runs r
  JOIN suites s ON s.run = r.id
  JOIN executions e ON e.suite = s.id
  {attempts.joined}
 WHERE r.mode = 'settled' AND r.source_run IN $ids
 ORDER BY e.repeat, r.started_at, e.id
"""  # noqa: S608 (constants of this package)


_TESTED = ("passed", "failed", "errored")


@dataclass(frozen=True, slots=True)
class AddedRepeats:
    """What was added to a test: each repeat that ended, and the number of the last that began."""

    counts: tuple[Counts, ...] = ()
    last: int = 0

    @property
    def total(self) -> Counts:
        """All of them together."""
        return Counts(sum(counts.passed for counts in self.counts), len(self.counts))


def read_added(
    db: sqlite3.Connection, runs: Sequence[str], attempts: Attempts
) -> dict[QualifiedName, AddedRepeats]:
    """Return what was added to the tests of a run, or of several that are read as one.

    Tests that nothing was added to are absent. `attempts`: by which these runs are compared.
    """
    found: dict[QualifiedName, AddedRepeats] = {}
    for project, suite, test, target, repeat, status, reached in db.execute(
        among(_added(attempts), runs), runs
    ):
        key = QualifiedName(project, suite, test, target)
        counts = found[key].counts if key in found else ()
        if status in _TESTED and reached:
            counts = (*counts, Counts(int(status == "passed"), 1))
        found[key] = AddedRepeats(counts, repeat)
    return found
