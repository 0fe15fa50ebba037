"""Repeats that were added to the tests of a run later, by `kindlm settle`.

They are runs of their own, of mode `settled`, whose source is the run that they add to. Each repeat
counts as a look of its own, in the order of their numbers and not in that in which they ended: a
repeat that fails may well be the quicker one.

A repeat that ended with an error did not pass. But where nobody answered any more until the run
ended, the target was out of reach, which says nothing of how it answers: those do not count.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kindlm.history.compared_attempts import Attempts
from kindlm.history.diff.samples import checks_made, read_checks
from kindlm.history.diff.values import QualifiedName
from kindlm.history.evidence.values import CheckKey, TestPair
from kindlm.history.queries import among
from kindlm.history.statistics.tables import Counts

__all__ = ["AddedRepeats", "read_added"]


def _added(attempts: Attempts) -> str:
    return f"""
SELECT s.project, s.name, e.test, e.target, e.repeat, {attempts.came_to("status")},
       e.number <= (SELECT max(l.number) FROM executions l
                     WHERE l.run = r.id AND (l.status IN ('passed', 'failed') OR l.answers > 0)),
       {checks_made(attempts)}
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
    """What was added to a test: each repeat that ended, and the number of the last that began.

    `checks` has, for each of these repeats, what it decided, and whether it errored.
    """

    counts: tuple[Counts, ...] = ()
    last: int = 0
    checks: tuple[tuple[str, bool], ...] = ()

    @property
    def total(self) -> Counts:
        """All of them together."""
        return Counts(sum(counts.passed for counts in self.counts), len(self.counts))

    def beside(self, pair: TestPair, before: AddedRepeats) -> TestPair:
        """Return a test and its checks, with these repeats of AFTER and others of BEFORE."""
        checks = {
            check: replace(
                known,
                added=tuple(self._of_check(check)),
                added_before=tuple(before._of_check(check)),
            )
            for check, known in pair.checks.items()
        }
        return replace(pair, added=self.counts, added_before=before.counts, checks=checks)

    def _of_check(self, check: CheckKey) -> Iterator[Counts]:
        """Yield the repeats that count for a check, as `CheckPair` has it."""
        for text, errored in self.checks:
            passed = read_checks(text).get(check)
            if passed is not None or errored:
                yield Counts(int(passed or False), 1)


def read_added(
    db: sqlite3.Connection, runs: Sequence[str], attempts: Attempts
) -> dict[QualifiedName, AddedRepeats]:
    """Return what was added to the tests of a run, or of several that are read as one.

    Tests that nothing was added to are absent. `attempts`: by which these runs are compared.
    """
    found: dict[QualifiedName, AddedRepeats] = {}
    for project, suite, test, target, repeat, status, reached, checks in db.execute(
        *among(_added(attempts), runs)
    ):
        key = QualifiedName(project, suite, test, target)
        known = found.get(key, AddedRepeats())
        if status in _TESTED and reached:
            known = AddedRepeats(
                (*known.counts, Counts(int(status == "passed"), 1)),
                checks=(*known.checks, (checks, status == "errored")),
            )
        found[key] = replace(known, last=repeat)
    return found
