"""The evidence of `kindlm settle`: the added repeats, the state of each test, and the next round.

The added repeats are runs of the mode `settled`, whose source is the run that they add to. Each
repeat is a separate look, in the order of their numbers, since a failing repeat may end before an
earlier one. An errored repeat did not pass. But if the target never answered again until the end of
the run, it was unreachable: such repeats do not count.

A test is suspected if its pass rate or that of one of its checks fell, or if its scores count as
regressed. All tests are judged together, however few of them are settled, since any of them might
have fallen by chance.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from kindlm.dataclass import dataclass, replace
from kindlm.history.diff.evidence import judge_pair, settle
from kindlm.history.diff.evidence_values import (
    MOST_ADDED,
    Change,
    CheckKey,
    CheckPair,
    Strength,
    TestPair,
)
from kindlm.history.diff.samples import CHECKS_MADE, Attempts, read_checks
from kindlm.history.queries import among
from kindlm.history.statistics.pass_rates import BLOCK, Settlement
from kindlm.history.statistics.tables import Counts
from kindlm.plan import QualifiedName


@dataclass(frozen=True, slots=True)
class AddedRepeats:
    """The repeats added to a test: those that ended, and the number of the last that began.

    `checks` has, for each of these repeats, its decisions, and whether it errored.
    """

    counts: tuple[Counts, ...] = ()
    last: int = 0
    checks: tuple[tuple[str, bool], ...] = ()

    def beside(self, pair: TestPair, before: AddedRepeats) -> TestPair:
        """Return a test and its checks, with these repeats of AFTER and others of BEFORE."""
        checks = {
            check: replace(known, added=self.of(check), added_before=before.of(check))
            for check, known in pair.checks.items()
        }
        return replace(pair, added=self.counts, added_before=before.counts, checks=checks)

    def of(self, check: CheckKey) -> tuple[Counts, ...]:
        """Return the repeats that count for a check, as `CheckPair` has it."""
        found = ((read_checks(text).get(check), errored) for text, errored in self.checks)
        return tuple(
            Counts(int(passed or 0), 1)
            for passed, errored in found
            if passed is not None or errored
        )


def read_added(
    db: sqlite3.Connection, runs: Sequence[str], attempts: Attempts
) -> dict[QualifiedName, AddedRepeats]:
    """Return the repeats added to the tests of a run, or of several that are read as one.

    Tests without added repeats are absent. `attempts`: the attempts by which these runs are
    compared.
    """
    found: dict[QualifiedName, AddedRepeats] = {}
    # CROSS JOIN: SQLite begins with the runs, which are fewer than the executions of a history.
    query = f"""
SELECT s.project, s.name, e.test, e.target, e.repeat, e.status,
       e.last_status IS NOT NULL AND e.number <= (SELECT max(l.number) FROM executions l
                     WHERE l.run = r.id AND (l.status IN ('passed', 'failed') OR l.answers > 0)),
       {CHECKS_MADE}
  FROM runs r
 CROSS JOIN suites s ON s.run = r.id
 CROSS JOIN {attempts.executions} e ON e.suite = s.id
 WHERE r.mode = 'settled' AND r.source_run IN $ids
 ORDER BY e.repeat, r.started_at, e.id
"""  # noqa: S608 (constants of this package)
    for *name, repeat, status, reached, checks in db.execute(*among(query, runs)):
        known = found.get(key := QualifiedName(*name), AddedRepeats())
        if status in ("passed", "failed", "errored") and reached:
            known = AddedRepeats(
                (*known.counts, Counts(int(status == "passed"), 1)),
                checks=(*known.checks, (checks, status == "errored")),
            )
        found[key] = replace(known, last=repeat)
    return found


@dataclass(frozen=True, slots=True)
class Suspect:
    """A suspected test with the repeats that were added to it, and its checks that fell.

    `standing` is what repeats have decided, None if only its scores fell. `repeats_to_settle` is
    how many repeats of each run would confirm such a drop in 4 of 5 cases.
    """

    key: QualifiedName
    rate: CheckPair
    standing: Settlement | None
    repeats_to_settle: int | None = None
    checks: Mapping[CheckKey, CheckPair] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether more repeats may decide it."""
        return self.standing is Settlement.UNDECIDED

    @property
    def room(self) -> int:
        """How many repeats may still be added to AFTER."""
        return max(MOST_ADDED - len(self.rate.added), 0) if self.is_open else 0

    @property
    def room_before(self) -> int:
        """How many repeats may still be added to BEFORE, if they are added to both sides."""
        return max(MOST_ADDED - len(self.rate.added_before), 0) if self.is_open else 0


def suspects(
    pairs: Mapping[QualifiedName, TestPair],
    added: Mapping[QualifiedName, AddedRepeats],
    regression_threshold: float | None,
    added_before: Mapping[QualifiedName, AddedRepeats] | None = None,
    *,
    both: bool = False,
) -> list[Suspect]:
    """Return the suspected tests of two runs, with the repeats added so far.

    Tests are open as long as more repeats of AFTER may decide them, or more of `both` sides.
    """
    nothing = AddedRepeats()
    known = {
        key: added.get(key, nothing).beside(pair, (added_before or {}).get(key, nothing))
        for key, pair in pairs.items()
    }
    settled = settle(known, both=both)
    evidence = judge_pair(known, regression_threshold=regression_threshold).tests
    found = []
    for key, test in evidence.items():
        rate, standing = known[key].rate, settled.get(key)
        if rate is None or not (standing or test.change is Change.REGRESSED):
            continue
        if (test.change, test.strength) == (Change.REGRESSED, Strength.CONFIRMED):
            standing = Settlement.CONFIRMED
        elif standing is Settlement.CONFIRMED:
            # The comparison confirms by added repeats only if there are any.
            standing = Settlement.UNDECIDED
        suspect = Suspect(
            key,
            rate,
            standing,
            test.repeats_to_settle,
            {check: pair for check, pair in known[key].checks.items() if pair.fell},
        )
        if suspect.is_open and not (suspect.room or (both and suspect.room_before)):
            # A check that not every repeat decided may still need more.
            suspect = replace(suspect, standing=Settlement.EXHAUSTED)
        found.append(suspect)
    return found


def share_out_both(
    found: Iterable[Suspect], most: int
) -> tuple[dict[QualifiedName, int], dict[QualifiedName, int]]:
    """Return how many repeats of BEFORE and of AFTER each open test gets next.

    Both sides get as many as they lack until the next look; at most `most` on each side.
    """
    lacking: tuple[dict[QualifiedName, int], ...] = ({}, {})
    for test in found:
        if test.is_open:
            sides = len(test.rate.added_before), len(test.rate.added)
            look = min(BLOCK * (min(sides) // BLOCK + 1), MOST_ADDED)
            for side, wanted in zip(sides, lacking, strict=True):
                wanted[test.key] = max(look - side, 0)
    before, after = (_in_turn(wanted, most) for wanted in lacking)
    return before, after


def share_out(found: Iterable[Suspect], at_a_time: int, most: int) -> dict[QualifiedName, int]:
    """Return how many repeats each open test gets next, in turn, at most `most` altogether."""
    return _in_turn({test.key: min(at_a_time, test.room) for test in found}, most)


def _in_turn(wanted: Mapping[QualifiedName, int], most: int) -> dict[QualifiedName, int]:
    given = dict.fromkeys(wanted, 0)
    for _ in range(max(wanted.values(), default=0)):
        for key, number in wanted.items():
            if given[key] < number and most > 0:
                given[key] += 1
                most -= 1
    return {key: number for key, number in given.items() if number}
