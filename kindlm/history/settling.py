"""The evidence of `kindlm settle`: the added repeats, the state of each test, and the next round.

Added repeats are in runs of the mode `settled`, whose source is the run that they add to. Each
repeat is a separate look, in the order of their numbers. An errored repeat counts as not passed,
unless the target did not answer again until the end of the run, and so was unreachable.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import islice

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
from kindlm.outcome import Status
from kindlm.plan import QualifiedName


@dataclass(frozen=True, slots=True)
class AddedRepeats:
    """The repeats added to a test that ended, and the number of the `last` that began.

    Each is its status, and its checks for `read_checks`.
    """

    repeats: tuple[tuple[Status, str], ...] = ()
    last: int = 0

    def of(self, check: CheckKey | None) -> tuple[Counts, ...]:
        """Return the repeats that decided a check, or errored; all repeats without a check."""
        if check is None:
            return tuple(Counts(int(status is Status.PASSED), 1) for status, _ in self.repeats)
        read = [(status, read_checks(text)) for status, text in self.repeats]
        return tuple(
            Counts(int(codes.get(check, "") is None), 1)
            for status, codes in read
            if check in codes or status is Status.ERRORED
        )


def with_added(pair: TestPair, before: AddedRepeats | None, after: AddedRepeats | None) -> TestPair:
    """Return a test and its checks with the repeats that were added to its sides."""
    if before is None and after is None:
        return pair
    old, new = before or AddedRepeats(), after or AddedRepeats()
    checks = {
        check: replace(known, added=new.of(check), added_before=old.of(check))
        for check, known in pair.checks.items()
    }
    return replace(pair, added=new.of(None), added_before=old.of(None), checks=checks)


def read_added(
    db: sqlite3.Connection, runs: Sequence[str], attempts: Attempts
) -> dict[QualifiedName, AddedRepeats]:
    """Return the repeats added to tests of a run, or of the shards of a group."""
    found: dict[QualifiedName, AddedRepeats] = {}
    # CROSS JOIN makes SQLite begin with the few runs.
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
        key = QualifiedName(*name)
        repeats = found.get(key, AddedRepeats()).repeats
        if status in ("passed", "failed", "errored") and reached:
            repeats = (*repeats, (Status(status), checks))
        found[key] = AddedRepeats(repeats, last=repeat)
    return found


@dataclass(frozen=True, slots=True)
class Suspect:
    """A suspected test, with its added repeats and its checks that fell.

    `standing` is the decision so far, None if only scores fell. `repeats_to_settle` is how many
    repeats of each run would confirm such a drop in 4 of 5 cases.
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
    before: Mapping[QualifiedName, AddedRepeats],
    after: Mapping[QualifiedName, AddedRepeats],
    regression_threshold: float | None,
    *,
    both: bool,
) -> list[Suspect]:
    """Return the suspected tests of two runs, with the repeats added so far to each side.

    More repeats of AFTER, or of `both` sides, may decide a test that is open.
    """
    known = {key: with_added(pair, before.get(key), after.get(key)) for key, pair in pairs.items()}
    settled = settle(known, both=both)
    evidence = judge_pair(known, regression_threshold=regression_threshold).tests
    found = []
    for key, test in evidence.items():
        rate, standing = known[key].rate, settled.get(key)
        # Repeats cannot change a test that fell only because its expectations are others.
        if rate is None or test.strength is Strength.EXPECTATIONS:
            continue
        if not (standing or test.change is Change.REGRESSED):
            continue
        if (test.change, test.strength) == (Change.REGRESSED, Strength.CONFIRMED):
            standing = Settlement.CONFIRMED
        elif standing is Settlement.CONFIRMED:
            # Without added repeats, the comparison does not confirm a test by them.
            standing = Settlement.UNDECIDED
        fell = {check: pair for check, pair in known[key].checks.items() if pair.fell}
        suspect = Suspect(key, rate, standing, test.repeats_to_settle, fell)
        if suspect.is_open and not (suspect.room or (both and suspect.room_before)):
            # A check may need more repeats than are allowed, since not every repeat decides it.
            suspect = replace(suspect, standing=Settlement.EXHAUSTED)
        found.append(suspect)
    return found


def share_out(
    found: Iterable[Suspect], most: int, *, both: bool
) -> tuple[dict[QualifiedName, int], dict[QualifiedName, int]]:
    """Return how many repeats of BEFORE and of AFTER each open test gets until the next look.

    Each side gets at most `most` altogether; without `both`, BEFORE gets none.
    """
    before: dict[QualifiedName, int] = {}
    after: dict[QualifiedName, int] = {}
    for test in found:
        if test.is_open:
            old, new = len(test.rate.added_before), len(test.rate.added)
            looked_at = min(old, new) if both else new
            next_look = min(BLOCK * (looked_at // BLOCK + 1), MOST_ADDED)
            before[test.key] = max(next_look - old, 0)
            after[test.key] = max(next_look - new, 0)
    return _in_turn(before if both else {}, most), _in_turn(after, most)


def _in_turn(wanted: Mapping[QualifiedName, int], most: int) -> dict[QualifiedName, int]:
    rounds = range(max(wanted.values(), default=0))
    turns = (key for given in rounds for key, number in wanted.items() if given < number)
    return dict(Counter(islice(turns, max(most, 0))))
