"""What became of a test between two runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kindlm.history.diff.behaviour import BehaviourChange
from kindlm.history.diff.evidence_values import Change, Side, Strength, TestEvidence, TestPair
from kindlm.history.statistics.tables import Counts, pooled
from kindlm.outcome import Status


class QualifiedName(NamedTuple):
    """What identifies a test in all runs."""

    project: str
    suite: str
    name: str
    target: str


class Kind(StrEnum):
    """What is to be said of a test, the most important first. Every test is of one kind.

    Regressed: confirmed, by other expectations, or passed before and not now in the one sample
    there is. Other behaviour, other checks, erased and other words: of tests whose result is as it
    was.
    """

    REGRESSED = "regressed"
    REMOVED = "removed"
    SUSPECTED = "suspected"
    NEW_FAILING = "added, not passing"
    OTHER_BEHAVIOUR = "other behaviour"
    OTHER_CHECKS = "other checks"
    ERASED = "texts erased"
    IMPROVED = "improved"
    ADDED = "added"
    OTHER_WORDS = "other words"
    NOT_RUN = "not run"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class TestDiff:
    """What became of a test. A side is None where the run's suite does not define it.

    `pair` is what it is judged by: each conversation once, and the repeats that `kindlm settle`
    added, which `before` and `after` do not have. `known`: whether a run that did not test it, or
    that does not define it, says anything of it; else it was not run. `fails`: by what was asked
    for, this makes the exit code 1.
    """

    __test__ = False  # not a pytest class

    key: QualifiedName
    before: Side | None
    after: Side | None
    behaviour: BehaviourChange
    pair: TestPair
    known: bool
    evidence: TestEvidence = TestEvidence(Change.NOT_RUN)
    fails: bool = False

    @property
    def added(self) -> Counts:
        """The repeats that were added to AFTER."""
        return pooled(self.pair.added)

    @property
    def added_before(self) -> Counts:
        """The repeats that were added to BEFORE."""
        return pooled(self.pair.added_before)

    @property
    def change(self) -> Change:
        """What became of it."""
        return self.evidence.change

    @property
    def strength(self) -> Strength | None:
        """How good the evidence for that is; None where there is nothing to doubt."""
        return self.evidence.strength

    @property
    def compared(self) -> bool:
        """Whether it ran on both sides."""
        return self.change in (Change.REGRESSED, Change.IMPROVED, Change.UNCHANGED)

    @property
    def pass_rates(self) -> tuple[float, float] | None:
        """The pass rates before and after, with added repeats; None if it did not run in both."""
        if not self.compared or self.before is None or self.after is None:
            return None
        before = pooled((self.before.counts, self.added_before))
        after = pooled((self.after.counts, self.added))
        return before.passed / before.n, after.passed / after.n

    @property
    def fell_by_checks(self) -> bool:
        """Whether only its checks pass less often, and not the test itself."""
        rates = self.pass_rates
        fell = rates is not None and rates[1] < rates[0]
        return bool(self.evidence.dropped_checks) and not fell

    @property
    def kind(self) -> Kind:
        """What is to be said of it."""
        match self.change:
            case Change.REGRESSED:
                return Kind.REGRESSED if self._is_sure else Kind.SUSPECTED
            case Change.ADDED:
                assert self.after is not None
                return Kind.ADDED if self.after.status is Status.PASSED else Kind.NEW_FAILING
            case Change.UNCHANGED if self.behaviour.any:
                return Kind.OTHER_BEHAVIOUR
            case Change.UNCHANGED if self.behaviour.checks:
                return Kind.OTHER_CHECKS
            case Change.UNCHANGED if self.behaviour.erased:
                return Kind.ERASED
            case Change.UNCHANGED if self.behaviour.output or self.behaviour.turns:
                return Kind.OTHER_WORDS
        return Kind(self.change)

    @property
    def _is_sure(self) -> bool:
        """Whether a regression is certain, or counts as one for want of any repeats."""
        if self.strength is Strength.ONE_SAMPLE:
            return self.evidence.newly_failed
        return self.strength is not Strength.SUSPECTED
