"""The values of a comparison: a test on both sides, and what became of it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import field
from enum import StrEnum
from itertools import accumulate, takewhile
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from kindlm.dataclass import dataclass
from kindlm.history.statistics import rate_difference_interval
from kindlm.history.statistics.pass_rates import Looks, Settlement, pass_rate_drop
from kindlm.history.statistics.tables import Counts, PairedComparison, pooled
from kindlm.outcome import Status
from kindlm.plan import QualifiedName

MOST_ADDED = 50
"""Repeats that may be added to a test of AFTER; not decided by then, it stays undecided."""

_REPEATED = 2

Key = TypeVar("Key", bound=Hashable)


class Change(StrEnum):
    """What became of a test. Not run: it is still defined, but nothing of it was tested."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    ADDED = "added"
    REMOVED = "removed"
    NOT_RUN = "not run"


class Strength(StrEnum):
    """How good the evidence for a change is. One sample: a side has no repeats to compare with.

    Other expectations: both sides are the same conversations, judged otherwise. That is certain.
    """

    CONFIRMED = "confirmed"
    EXPECTATIONS = "other expectations"
    SUSPECTED = "suspected"
    ONE_SAMPLE = "one sample"


class FailOn(StrEnum):
    """What makes the exit code 1.

    By default confirmed regressions, those by other expectations, removed tests, and, without
    repeats, tests and checks that newly fail. Any: also suspected regressions. Behaviour: also
    every change of behaviour, even of tests that pass.
    """

    DEFAULT = "default"
    ANY = "any"
    BEHAVIOUR = "behaviour"
    NEVER = "never"


class Verdict(StrEnum):
    """The verdict on two runs. Regressed is what fails by default.

    Incomplete: nothing got worse for certain, but a part of AFTER is missing or a suite of it could
    not be loaded. `RunDiff` decides that, and whether anything was compared.
    """

    REGRESSED = "regressed"
    INCOMPLETE = "incomplete"
    NOTHING_COMPARED = "nothing compared"
    SUSPECTED = "suspected"
    IMPROVED = "improved"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Side:
    """A test in one run, over its repeats that ended and were not skipped.

    `scores` has the scores of each scored repeat, by what gave them: a criterion of a judge, a
    weighted score. `means` are `judge` and `score` (0 to 1), `drift`, `latency` (ms), `tokens` and
    `cost` (USD), as far as measured. `usual` is the execution that stands for the test, `alike` how
    many repeats behave as it does. `elsewhere` counts the repeats whose conversations were held in
    an earlier run.
    """

    counts: Counts = Counts(0, 0)
    status: Status = Status.SKIPPED
    scores: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    errored: int = 0
    means: Mapping[str, float] = field(default_factory=dict)
    usual: str | None = None
    alike: int = 0
    models: tuple[str, ...] = ()
    elsewhere: int = 0
    failure_codes: frozenset[str] = frozenset()

    @property
    def passed(self) -> bool:
        """Whether the test passed."""
        return self.status is Status.PASSED

    @property
    def pass_rate(self) -> float | None:
        """The share of its repeats that passed; None if nothing was tested."""
        return self.counts.passed / self.counts.n if self.counts.n else None


class CheckKey(NamedTuple):
    """What identifies a check of a test: a demand that is the same in both runs.

    `number` distinguishes equal demands of one execution, such as one after each turn: from 0, in
    the order they were evaluated.
    """

    kind: str
    label: str
    threshold: float | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class CheckPair:
    """A check, or a test as a whole, before and after: repeats that passed of those that count.

    A repeat counts if it decided the check, or if it errored: then it did not pass. `added` are
    repeats that were added to AFTER. `newly_failed`: its pass rate no longer reaches what the test
    demands. `strength` is how sure it is that it fell, once that is judged.
    """

    before: Counts
    after: Counts
    added: tuple[Counts, ...] = ()
    added_before: tuple[Counts, ...] = ()
    newly_failed: bool = False
    strength: Strength | None = None

    @property
    def direction(self) -> int:
        """Whether the pass rate fell (-1), rose (1) or stayed (0), without rounding."""
        old, new = self.before.passed * self.after.n, self.after.passed * self.before.n
        return (new > old) - (new < old)

    @property
    def fell(self) -> bool:
        """Whether the pass rate is lower than before."""
        return self.direction < 0

    @property
    def repeated(self) -> bool:
        """Whether both sides have repeats, so that something can be confirmed."""
        return min(self.before.n, self.after.n) >= _REPEATED

    @property
    def all_before(self) -> Counts:
        """The repeats of BEFORE, with those that were added to it."""
        return pooled((self.before, *self.added_before))

    @property
    def all_after(self) -> Counts:
        """The repeats of AFTER, with those that were added to it, as far as these count."""
        return self.looks.after[-1] if self.added else self.after

    @property
    def looks(self) -> Looks:
        """AFTER before anything was added, and after each addition, as far as these count."""
        grown = accumulate(self.added, lambda *both: pooled(both), initial=self.after)
        most = self.after.n + MOST_ADDED
        after = tuple(takewhile(lambda counts: counts.n <= most, grown))
        return Looks(self.before, after, MOST_ADDED)

    @property
    def p_value(self) -> float | None:
        """The one-sided p-value of the change, without added repeats; None if there is none.

        Nor is there one where both sides are the same conversations, which hold no chance.
        """
        if self.direction == 0 or self.strength is Strength.EXPECTATIONS:
            return None
        worse, better = (self.before, self.after) if self.fell else (self.after, self.before)
        return pass_rate_drop(Looks(worse, (better,)))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the change, added repeats included; None like the p-value."""
        if self.strength is Strength.EXPECTATIONS:
            return None
        return rate_difference_interval(self.all_before, self.all_after)


Rate: TypeAlias = tuple[Key, CheckKey | None]
"""A pass rate that is compared: that of a test, or of one of its checks."""


@dataclass(frozen=True, slots=True)
class BrokenLimits:
    """The limits of a test's scores that AFTER breaks and BEFORE keeps to.

    `told` says in words how they are broken. `scores` are the names of the scores they are about.
    """

    told: tuple[str, ...]
    scores: frozenset[str]


@dataclass(frozen=True, slots=True)
class TestPair:
    """A test before and after; None where it is not defined. `checks` are those of both sides.

    `added` are the repeats that were added to AFTER later, in the order they were run in: at each
    look the decision to go on was taken from all before. `same_conversations`: no chance is between
    the sides. `broken_limits` are those of its scores, None if no limit is newly broken.
    """

    __test__ = False  # not a pytest class

    before: Side | None
    after: Side | None
    added: tuple[Counts, ...] = ()
    behaviour_changed: bool = False
    same_conversations: bool = False
    checks: Mapping[CheckKey, CheckPair] = field(default_factory=dict)
    added_before: tuple[Counts, ...] = ()
    broken_limits: BrokenLimits | None = None

    @property
    def rate(self) -> CheckPair | None:
        """The pass rate of the test as a whole; None if a side has no repeats."""
        if self.before is None or self.after is None:
            return None
        old, new = self.before.counts, self.after.counts
        strength = Strength.EXPECTATIONS if self.same_conversations else None
        pair = CheckPair(old, new, self.added, self.added_before, strength=strength)
        return pair if old.n and new.n else None


@dataclass(frozen=True, slots=True)
class TestEvidence:
    """What became of a test, and how sure that is.

    `repeats_to_settle` is how many repeats on each side would confirm such a change in 4 of 5
    cases. `dropped_scores` are those whose mean fell by more than the threshold, or at all where it
    newly breaks a limit. `dropped_checks` are the checks that pass less often, the surest first.
    `newly_failed`: the test, or a check of a failed test, passed before; where a side has one
    sample, that decides.
    """

    __test__ = False  # not a pytest class

    change: Change
    strength: Strength | None = None
    repeats_to_settle: int | None = None
    dropped_scores: tuple[str, ...] = ()
    settlement: Settlement | None = None
    dropped_checks: dict[CheckKey, CheckPair] = field(default_factory=dict)
    newly_failed: bool = False


@dataclass(frozen=True, slots=True)
class RunEvidence(Generic[Key]):
    """What became of all tests, and of the runs as a whole.

    `paired` is None if no test had conversations of its own on both sides; `run_regressed` says
    whether it confirms a drop. `failing` are the tests that make the exit code 1, which is `fails`.
    `rates` are the pass rates that were compared: between their sides there is chance.
    """

    tests: Mapping[Key, TestEvidence]
    paired: PairedComparison | None
    run_regressed: bool
    verdict: Verdict
    failing: tuple[Key, ...]
    fails: bool
    rates: Mapping[Rate[Key], CheckPair]


@dataclass(frozen=True, slots=True)
class BehaviourChange:
    """How a test behaves differently.

    `failures`: other checks do not pass. `checks`: other checks are made. `turns` before the last
    one have other answers. `erased`: texts of behaviour are gone, and cannot be compared.
    """

    tools: bool = False
    arguments: bool = False
    failures: bool = False
    checks: bool = False
    output: bool = False
    erased: bool = False
    turns: tuple[int, ...] = ()

    @property
    def any(self) -> bool:
        """Whether the test does something else, other words and other checks aside."""
        return self.tools or self.arguments or self.failures


class Kind(StrEnum):
    """How a test is shown, the most important first. Every test is of one kind.

    Regressed: confirmed, by other expectations, or newly failed in the one sample there is. Other
    behaviour, other checks, erased and other words: the result is as it was.
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
    added. `known` is false if a run did not test it, or may define it in a file it could not load.
    `fails`: by what was asked for, this makes the exit code 1.
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
        before, after = self.before.counts, self.after.counts
        if self.pair.added or self.pair.added_before:
            before, after = pooled((before, self.added_before)), pooled((after, self.added))
        return before.passed / before.n, after.passed / after.n

    @property
    def fell_by_checks(self) -> bool:
        """Whether only its checks pass less often, and not the test itself."""
        rates = self.pass_rates
        fell = rates is not None and rates[1] < rates[0]
        return bool(self.evidence.dropped_checks) and not fell

    @property
    def fell_by_errors(self) -> bool:
        """Whether no answer failed: all repeats of AFTER that did not pass errored."""
        if self.after is None or self.evidence.dropped_scores or self.added.n:
            return False
        not_passed = self.after.counts.n - self.after.counts.passed
        return 0 < self.after.errored == not_passed

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
