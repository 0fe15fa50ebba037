"""Which tests of two runs are suspected, how each stands, and which want more repeats.

Suspected is a test whose pass rate fell, or that of one of its checks, or that counts as regressed
by its scores. Repeats are added to AFTER, or to both sides, equally many. How a test stands is
judged together with all others, however few of them are to be settled: any of them might have
fallen by chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kindlm.history.diff.added import AddedRepeats
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
from kindlm.history.statistics.pass_rates import BLOCK
from kindlm.history.statistics.sequential import Settlement
from kindlm.history.statistics.tables import Counts

__all__ = [
    "Standing",
    "Suspect",
    "SuspectCheck",
    "share_out",
    "share_out_both",
    "suspects",
    "with_added",
]


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
    known = with_added(pairs, added, added_before or {})
    settled = settle(known, both=both)
    evidence = judge_pair(known, regression_threshold=regression_threshold).tests
    return [
        _suspect(key, known[key], test, settled.get(key), both=both)
        for key, test in evidence.items()
        if known[key].counts and (key in settled or test.change is Change.REGRESSED)
    ]


def with_added(
    pairs: Mapping[QualifiedName, TestPair],
    added: Mapping[QualifiedName, AddedRepeats],
    added_before: Mapping[QualifiedName, AddedRepeats],
) -> dict[QualifiedName, TestPair]:
    """Return the tests of two runs with what was added to each side."""
    none = AddedRepeats()
    return {
        key: added.get(key, none).beside(pair, added_before.get(key, none))
        for key, pair in pairs.items()
    }


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
