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
    """How a test changed. Not run: it is still defined, but nothing of it was tested."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    ADDED = "added"
    REMOVED = "removed"
    NOT_RUN = "not run"


class Strength(StrEnum):
    """How good the evidence for a change is. One sample: a side has no repeats to compare with.

    Other expectations: both sides are the same conversations, judged differently. That is certain.
    """

    CONFIRMED = "confirmed"
    EXPECTATIONS = "other expectations"
    SUSPECTED = "suspected"
    ONE_SAMPLE = "one sample"


class FailOn(StrEnum):
    """What makes the exit code 1.

    By default: confirmed regressions, regressions by other expectations, removed tests, and,
    without repeats, tests and checks that newly fail. Any: also suspected regressions. Behaviour:
    also every change of behaviour, even of tests that pass.
    """

    DEFAULT = "default"
    ANY = "any"
    BEHAVIOUR = "behaviour"
    NEVER = "never"


class Verdict(StrEnum):
    """The verdict on two runs. Regressed: something fails that fails by default.

    Incomplete: no regression is certain, but a part of AFTER is missing or a suite of it could not
    be loaded. `RunDiff` decides that, and whether anything was compared.
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

    `scores` has the scores of each scored repeat, by their source: a criterion of a judge, a
    weighted score. `means` are `judge` and `score` (0 to 1), `drift`, `latency` (ms), `tokens` and
    `cost` (USD), as far as measured. `usual` is the execution that represents the test, `alike` the
    number of repeats that behave like it. `elsewhere` counts the repeats whose conversations were
    held in an earlier run.
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
    """The identity of a check of a test: a demand that is the same in both runs.

    `number` distinguishes equal demands of one execution, such as one after each turn: from 0, in
    the order they were evaluated.
    """

    kind: str
    label: str
    threshold: float | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class CheckPair:
    """A check, or a test as a whole, before and after: how many of its repeats passed.

    A repeat counts if it decided the check, or if it errored: then it did not pass. `added` are
    repeats that were added to AFTER. `newly_failed`: its pass rate no longer meets the demand of
    the test. `strength` is how sure the drop is, once that is judged.
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
        """Whether both sides have repeats, so that a change can be confirmed."""
        return min(self.before.n, self.after.n) >= _REPEATED

    @property
    def all_before(self) -> Counts:
        """The repeats of BEFORE, including added ones."""
        return pooled((self.before, *self.added_before))

    @property
    def all_after(self) -> Counts:
        """The repeats of AFTER, including added ones, as far as these count."""
        return self.looks.after[-1] if self.added else self.after

    @property
    def looks(self) -> Looks:
        """AFTER before any addition, and after each addition, as far as these count."""
        grown = accumulate(self.added, lambda *both: pooled(both), initial=self.after)
        most = self.after.n + MOST_ADDED
        after = tuple(takewhile(lambda counts: counts.n <= most, grown))
        return Looks(self.before, after, MOST_ADDED)

    @property
    def p_value(self) -> float | None:
        """The one-sided p-value of the change, without added repeats; None if there is none.

        There is none if both sides are the same conversations, since chance cannot change those.
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
    """The score limits of a test that AFTER breaks and BEFORE keeps.

    `told` says in words how they are broken. `scores` are the names of the scores concerned.
    """

    told: tuple[str, ...]
    scores: frozenset[str]


@dataclass(frozen=True, slots=True)
class TestPair:
    """A test before and after; None where it is not defined. `checks` are those of both sides.

    `added` are the repeats added to AFTER later, in the order they ran: at each look, the decision
    to go on depended on all earlier ones. `same_conversations`: both sides are the same
    conversations, so chance cannot differ. `broken_limits` are its newly broken limits, None
    without any.
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
    """How a test changed, and how sure that is.

    `repeats_to_settle` is how many repeats on each side would confirm such a change in 4 of 5
    cases. `dropped_scores` are those whose mean fell by more than the threshold, or at all if that
    newly breaks a limit. `dropped_checks` are the checks that pass less often, the surest first.
    `newly_failed`: the test, or a check of a failed test, passed before; if a side has one sample,
    that decides.
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
    """The changes of all tests, and of the runs as a whole.

    `paired` is None if no test had conversations of its own on both sides; `run_regressed` says
    whether it confirms a drop. `failing` are the tests that make the exit code 1, which is `fails`.
    `rates` are the compared pass rates, which chance may have changed.
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

    `failures`: other checks fail. `checks`: other checks are made. `turns`: earlier turns have
    other answers. `erased`: texts are gone, so behaviour cannot be compared.
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
        """Whether the test behaves differently, apart from other words and other checks."""
        return self.tools or self.arguments or self.failures


class Kind(StrEnum):
    """The kind of change that a test is listed under, the most important first.

    Regressed: confirmed, by other expectations, or newly failed if there is only one sample. Other
    behaviour, other checks, erased and other words: the result is unchanged.
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
    """How a test changed. A side is None if the run's suite does not define the test.

    `pair` is the basis of the judgement: each conversation once, and the repeats that `kindlm
    settle` added. `known` is false if a run did not test it, or may define it in a file it could
    not load. `fails`: this makes the exit code 1, given the options.
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
        """How it changed."""
        return self.evidence.change

    @property
    def strength(self) -> Strength | None:
        """How good the evidence for that is; None if there is no doubt."""
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
        """The kind that the test is listed under."""
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
        """Return whether a regression is certain, or counts as one since there are no repeats."""
        if self.strength is Strength.ONE_SAMPLE:
            return self.evidence.newly_failed
        return self.strength is not Strength.SUSPECTED
