"""Which tests of two runs are suspected, how each stands, and which want more repeats.

Suspected is a test whose pass rate fell, or that counts as regressed by its scores. Repeats are
added to AFTER only. How a test stands is judged together with all others, however few of them are
to be settled: any of them might have fallen by chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kindlm.history.comparison import Change
from kindlm.history.diff.added import AddedRepeats
from kindlm.history.diff.values import QualifiedName
from kindlm.history.evidence import MOST_ADDED, Strength, TestEvidence, TestPair, judge_pair, settle
from kindlm.history.statistics import Counts, Settlement

__all__ = ["Standing", "Suspect", "share_out", "suspects"]


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


@dataclass(frozen=True, slots=True)
class Suspect:
    """A suspected test: its repeats of both runs, and those that were added to AFTER.

    `repeats_to_settle` is how many repeats of each run would confirm such a drop in 4 of 5 cases.
    """

    key: QualifiedName
    before: Counts
    after: Counts
    added: Counts
    standing: Standing
    repeats_to_settle: int | None = None

    @property
    def room(self) -> int:
        """How many repeats may still be added."""
        return MOST_ADDED - self.added.n if self.standing is Standing.OPEN else 0


def suspects(
    pairs: Mapping[QualifiedName, TestPair],
    added: Mapping[QualifiedName, AddedRepeats],
    regression_threshold: float,
) -> list[Suspect]:
    """Return the suspected tests of two runs, with what was added to AFTER until now."""
    known = {key: added.get(key, AddedRepeats()).beside(pair) for key, pair in pairs.items()}
    settled = settle(known)
    evidence = judge_pair(known, regression_threshold=regression_threshold).tests
    return [
        _suspect(key, known[key], test, settled.get(key))
        for key, test in evidence.items()
        if known[key].counts and (key in settled or test.change is Change.REGRESSED)
    ]


def share_out(found: Iterable[Suspect], at_a_time: int, most: int) -> dict[QualifiedName, int]:
    """Return how many repeats each open test gets next, at most `most` of them altogether.

    If they do not go round, the tests get one after the other in turn, so that none is left out
    while another has more.
    """
    wanted = {test.key: min(at_a_time, test.room) for test in found if test.room > 0}
    given = dict.fromkeys(wanted, 0)
    for _ in range(at_a_time):
        for key, number in wanted.items():
            if given[key] < number and most > 0:
                given[key] += 1
                most -= 1
    return {key: number for key, number in given.items() if number}


def _suspect(
    key: QualifiedName, pair: TestPair, test: TestEvidence, settlement: Settlement | None
) -> Suspect:
    assert pair.counts is not None
    confirmed = test.change is Change.REGRESSED and test.strength is Strength.CONFIRMED
    if confirmed:
        standing = Standing.CONFIRMED
    else:
        standing = Standing.SCORES_ONLY if settlement is None else _STANDINGS[settlement]
    return Suspect(key, *pair.counts, _total(pair.added), standing, test.repeats_to_settle)


def _total(added: Sequence[Counts]) -> Counts:
    return Counts(sum(counts.passed for counts in added), sum(counts.n for counts in added))
