"""Repeats that `kindlm settle` added to suspected tests, how each test stands, and what is next.

The repeats are runs of their own, of mode `settled`, whose source is the run that they add to. Each
repeat counts as a look of its own, in the order of their numbers and not in that in which they
ended: a repeat that fails may well be the quicker one. A repeat that ended with an error did not
pass. But where nobody answered any more until the run ended, the target was out of reach, which
says nothing of how it answers: those do not count.

Suspected is a test whose pass rate fell, or that of one of its checks, or that counts as regressed
by its scores. Repeats are added to AFTER, or to both sides, equally many. How a test stands is
judged together with all others, however few of them are to be settled: any of them might have
fallen by chance.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from kindlm.history.compared_attempts import Attempts
from kindlm.history.diff.samples import checks_made, read_checks
from kindlm.history.diff.values import QualifiedName
from kindlm.history.evidence.judging import judge_pair, settle
from kindlm.history.evidence.values import (
    MOST_ADDED,
    Change,
    CheckKey,
    Strength,
    TestEvidence,
    TestPair,
)
from kindlm.history.queries import among
from kindlm.history.statistics.pass_rates import BLOCK
from kindlm.history.statistics.sequential import Settlement
from kindlm.history.statistics.tables import Counts

__all__ = [
    "AddedRepeats",
    "Standing",
    "Suspect",
    "SuspectCheck",
    "read_added",
    "share_out",
    "share_out_both",
    "suspects",
]


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


class Standing(StrEnum):
    """How a suspected test stands. More repeats are of use only to one that is open."""

    CONFIRMED = "confirmed"
    CLEARED = "cleared"
    OPEN = "open"
    EXHAUSTED = "exhausted"
    BEFORE_TOO_SMALL = "before too small"
    SCORES_ONLY = "scores only"


_STANDINGS = {
    Settlement.CLEARED: Standing.CLEARED,
    Settlement.UNDECIDED: Standing.OPEN,
    Settlement.EXHAUSTED: Standing.EXHAUSTED,
    Settlement.BEFORE_TOO_SMALL: Standing.BEFORE_TOO_SMALL,
    # The comparison confirms by added repeats only where there are any.
    Settlement.CONFIRMED: Standing.OPEN,
}


class SuspectCheck(NamedTuple):
    """A check of a suspected test that passed less often in AFTER, with the repeats that count."""

    check: CheckKey
    before: Counts
    after: Counts
    added: Counts
    added_before: Counts = Counts(0, 0)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A suspected test: its repeats of both runs, and those that were added to AFTER.

    `repeats_to_settle` is how many repeats of each run would confirm such a drop in 4 of 5 cases.
    `added_before` are those that were added to BEFORE.
    """

    key: QualifiedName
    before: Counts
    after: Counts
    added: Counts
    standing: Standing
    repeats_to_settle: int | None = None
    added_before: Counts = Counts(0, 0)
    checks: tuple[SuspectCheck, ...] = ()

    @property
    def room(self) -> int:
        """How many repeats may still be added to AFTER."""
        return max(MOST_ADDED - self.added.n, 0) if self.standing is Standing.OPEN else 0

    @property
    def room_before(self) -> int:
        """How many repeats may still be added to BEFORE, if they are added to both sides."""
        return max(MOST_ADDED - self.added_before.n, 0) if self.standing is Standing.OPEN else 0


def suspects(
    pairs: Mapping[QualifiedName, TestPair],
    added: Mapping[QualifiedName, AddedRepeats],
    regression_threshold: float,
    added_before: Mapping[QualifiedName, AddedRepeats] | None = None,
    *,
    both: bool = False,
) -> list[Suspect]:
    """Return the suspected tests of two runs, with what was added to them until now.

    Tests are open as long as more repeats of AFTER may decide them, or more of `both` sides.
    """
    added_before, nothing = added_before or {}, AddedRepeats()
    known = {
        key: added.get(key, nothing).beside(pair, added_before.get(key, nothing))
        for key, pair in pairs.items()
    }
    settled = settle(known, both=both)
    evidence = judge_pair(known, regression_threshold=regression_threshold).tests
    return [
        _suspect(key, known[key], test, settled.get(key), both=both)
        for key, test in evidence.items()
        if known[key].counts and (key in settled or test.change is Change.REGRESSED)
    ]


def share_out_both(
    found: Iterable[Suspect], most: int
) -> tuple[dict[QualifiedName, int], dict[QualifiedName, int]]:
    """Return how many repeats of BEFORE and of AFTER each open test gets next.

    Both sides get as many as they lack until the next look; at most `most` on each side.
    """
    lacking: tuple[dict[QualifiedName, int], ...] = ({}, {})
    for test in found:
        if test.standing is Standing.OPEN:
            sides = test.added_before.n, test.added.n
            look = min(BLOCK * (min(sides) // BLOCK + 1), MOST_ADDED)
            for side, wanted in zip(sides, lacking, strict=True):
                wanted[test.key] = max(look - side, 0)
    before, after = (_in_turn(wanted, most) for wanted in lacking)
    return before, after


def share_out(found: Iterable[Suspect], at_a_time: int, most: int) -> dict[QualifiedName, int]:
    """Return how many repeats each open test gets next, at most `most` of them altogether.

    If they do not go round, the tests get one after the other in turn, so that none is left out
    while another has more.
    """
    return _in_turn({test.key: min(at_a_time, test.room) for test in found}, most)


def _in_turn(wanted: Mapping[QualifiedName, int], most: int) -> dict[QualifiedName, int]:
    given = dict.fromkeys(wanted, 0)
    for _ in range(max(wanted.values(), default=0)):
        for key, number in wanted.items():
            if given[key] < number and most > 0:
                given[key] += 1
                most -= 1
    return {key: number for key, number in given.items() if number}


def _suspect(
    key: QualifiedName,
    pair: TestPair,
    test: TestEvidence,
    settlement: Settlement | None,
    *,
    both: bool,
) -> Suspect:
    assert pair.counts is not None
    confirmed = test.change is Change.REGRESSED and test.strength is Strength.CONFIRMED
    if confirmed:
        standing = Standing.CONFIRMED
    else:
        standing = Standing.SCORES_ONLY if settlement is None else _STANDINGS[settlement]
    added, added_before = _total(pair.added), _total(pair.added_before)
    if (
        standing is Standing.OPEN
        and added.n >= MOST_ADDED
        and (added_before.n >= MOST_ADDED or not both)
    ):
        # A check that not every repeat decided may still want more.
        standing = Standing.EXHAUSTED
    checks = tuple(
        SuspectCheck(
            check, known.before, known.after, _total(known.added), _total(known.added_before)
        )
        for check, known in pair.checks.items()
        if known.fell
    )
    return Suspect(key, *pair.counts, added, standing, test.repeats_to_settle, added_before, checks)


def _total(added: Sequence[Counts]) -> Counts:
    return Counts(sum(counts.passed for counts in added), sum(counts.n for counts in added))
