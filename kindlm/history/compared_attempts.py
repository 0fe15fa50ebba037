"""By which attempts two runs are compared, where executions did not pass and were run again.

The first attempts count: that something passed in the end would hide how often it does not. But
what was rescored or replayed was made from the last attempts and holds no others. Beside such a run
the last attempts count on both sides, so that the same conversations are compared with themselves.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from enum import StrEnum

from kindlm.history.queries import among
from kindlm.history.rows import AttemptView

_RETRIED_IN = """
SELECT EXISTS (SELECT 1 FROM executions e
                 JOIN retried_attempts r ON r.execution = e.id
                WHERE e.run IN $ids)
"""

# A run whose source is not in this history may come from one of any kind.
_FROM_LAST = """
WITH RECURSIVE sources(run) AS (
  SELECT source_run FROM runs WHERE id IN $ids AND mode IN ('rescored', 'replayed')
  UNION
  SELECT r.source_run FROM sources s JOIN runs r ON r.id = s.run
   WHERE r.mode IN ('rescored', 'replayed')
)
SELECT EXISTS (
  SELECT 1 FROM sources s
   WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = s.run)
      OR EXISTS (SELECT 1 FROM executions e
                   JOIN retried_attempts r ON r.execution = e.id
                  WHERE e.run = s.run))
"""

_FIRST = "(SELECT min(attempt) FROM retried_attempts WHERE execution = e.id)"
"""The first attempt at an execution that was run again; null of any other."""


class Attempts(StrEnum):
    """The attempts by which executions are compared. Those of most are first and last in one."""

    FIRST = "first"
    LAST = "last"

    @property
    def checked(self) -> str:
        """The attempt at an execution `e` whose assertions count, in SQL."""
        return f"coalesce({_FIRST}, e.attempt)" if self is Attempts.FIRST else "e.attempt"

    @property
    def said(self) -> str:
        """The attempt at the execution `e.source` whose conversation counts, in SQL."""
        # The source of an execution that was run again is itself.
        if self is Attempts.FIRST:
            return f"coalesce({_FIRST}, e.source_attempt)"
        return "e.source_attempt"

    @property
    def joined(self) -> str:
        """What a query of executions `e` has to join for `came_to`, in SQL."""
        if self is Attempts.LAST:
            return ""
        return f"LEFT JOIN retried_attempts f ON f.execution = e.id AND f.attempt = {_FIRST}"

    def came_to(self, column: str) -> str:
        """Return a column of what an execution `e` came to by the attempt that counts, in SQL."""
        if self is Attempts.LAST:
            return f"e.{column}"
        return f"iif(f.attempt IS NULL, e.{column}, f.{column})"

    def of(self, ended: Sequence[AttemptView]) -> AttemptView:
        """Return the attempt that counts, of all at an execution that ended."""
        return ended[0 if self is Attempts.FIRST else -1]


def attempts_to_compare(
    db: sqlite3.Connection, before: Sequence[str], after: Sequence[str]
) -> Attempts | None:
    """Return by which attempts runs are compared; None if nothing of them was run again.

    `before` and `after` are the ids of the runs that are read as one on each side.
    """
    runs = list(dict.fromkeys([*before, *after]))
    if not db.execute(*among(_RETRIED_IN, runs)).fetchone()[0]:
        return None
    from_last = db.execute(*among(_FROM_LAST, runs)).fetchone()[0]
    return Attempts.LAST if from_last else Attempts.FIRST
