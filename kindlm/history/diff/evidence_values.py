"""The values of a comparison: a test on both sides, and how it changed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

from kindlm.dataclass import dataclass
from kindlm.history.statistics import rate_difference_interval
from kindlm.history.statistics.pass_rates import Looks, Settlement, pass_rate_drop
from kindlm.history.statistics.tables import Counts, PairedComparison, pooled
from kindlm.outcome import Status
from kindlm.plan import QualifiedName

if TYPE_CHECKING:
    from kindlm.history.diff.config import SuiteConfig

MOST_ADDED = 50
"""The most repeats that may be added to a test on each side."""

Key = TypeVar("Key", bound=Hashable)


class Change(StrEnum):
    """How a test changed; a test that did not run is defined, but was not tested."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    ADDED = "added"
    REMOVED = "removed"
    NOT_RUN = "not run"


class Strength(StrEnum):
    """The strength of the evidence for a change.

    Other expectations: both sides have the same conversations, judged differently, so the change is
    certain. One sample: a side has only one repeat.
    """

    CONFIRMED = "confirmed"
    EXPECTATIONS = "other expectations"
    SUSPECTED = "suspected"
    ONE_SAMPLE = "one sample"


class FailOn(StrEnum):
    """What makes the exit code 1.

    Default: confirmed regressions, regressions by other expectations, removed tests, and, without
    repeats, tests and checks that newly fail. Any: also suspected regressions. Behaviour: as by
    default, and every change of behaviour.
    """

    DEFAULT = "default"
    ANY = "any"
    BEHAVIOUR = "behaviour"
    NEVER = "never"


class Verdict(StrEnum):
    """The verdict on two runs: regressed if a test, or the run as a whole, fails by default.

    Incomplete: no regression is certain, but results of AFTER are missing, or a suite of it could
    not be loaded. Only `RunDiff` returns this verdict, and that nothing was compared.
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

    `scores` are by source, such as a criterion of a judge. `means` are `judge` and `score` (0 to
    1), `drift`, `latency` (ms), `tokens` and `cost` (USD), as far as measured. `usual` is the id of
    the execution that represents the test, `alike` the number of repeats that behave like it.
    `broken_limits` are the limits of its weighted scores that it breaks, in words.
    """

    counts: Counts = Counts(0, 0)
    status: Status = Status.SKIPPED
    scores: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    errored: int = 0
    means: Mapping[str, float] = field(default_factory=dict)
    usual: str | None = None
    alike: int = 0
    models: tuple[str, ...] = ()
    broken_limits: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the test passed."""
        return self.status is Status.PASSED


class CheckKey(NamedTuple):
    """The identity of a check of a test in both runs.

    `number` distinguishes equal checks of one execution, such as after each turn, from 0.
    """

    kind: str
    label: str
    threshold: float | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class CheckPair:
    """The passed and all repeats of a check, or of a test as a whole, before and after.

    A repeat counts for a check if it decided the check, or if it errored and so did not pass.
    `newly_failed` is whether its pass rate no longer meets that of the test. `strength` is that of
    a drop, after the judgement.
    """

    before: Counts
    after: Counts
    added: tuple[Counts, ...] = ()
    added_before: tuple[Counts, ...] = ()
    newly_failed: bool = False
    strength: Strength | None = None

    @property
    def direction(self) -> int:
        """-1 if the pass rate fell, 1 if it rose, 0 if it stayed the same."""
        old, new = self.before.passed * self.after.n, self.after.passed * self.before.n
        return (new > old) - (new < old)

    @property
    def fell(self) -> bool:
        """Whether the pass rate is lower than before."""
        return self.direction < 0

    @property
    def repeated(self) -> bool:
        """Whether both sides have two repeats or more, so that a change can be confirmed."""
        return min(self.before.n, self.after.n) >= 2

    @property
    def all_before(self) -> Counts:
        """The repeats of BEFORE, including added ones."""
        return pooled((self.before, *self.added_before))

    @property
    def all_after(self) -> Counts:
        """The repeats of AFTER, including up to `MOST_ADDED` added ones."""
        return self.looks.after[-1] if self.added else self.after

    @property
    def looks(self) -> Looks:
        """AFTER without and after each addition, up to `MOST_ADDED`."""
        grown = accumulate(self.added, lambda *both: pooled(both), initial=self.after)
        most = self.after.n + MOST_ADDED
        after = tuple(takewhile(lambda counts: counts.n <= most, grown))
        return Looks(self.before, after, MOST_ADDED)

    @property
    def p_value(self) -> float | None:
        """The one-sided p-value of the change, without added repeats.

        None without a change, and for the same conversations, which chance cannot change.
        """
        if self.direction == 0 or self.strength is Strength.EXPECTATIONS:
            return None
        worse, better = (self.before, self.after) if self.fell else (self.after, self.before)
        return pass_rate_drop(Looks(worse, (better,)))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the change, with added repeats; None for the same conversations."""
        if self.strength is Strength.EXPECTATIONS:
            return None
        return rate_difference_interval(self.all_before, self.all_after)


Rate: TypeAlias = tuple[Key, CheckKey | None]
"""A compared pass rate: that of a test, or of one of its checks."""


@dataclass(frozen=True, slots=True)
class TestPair:
    """A test before and after, None where it is not defined; the basis of the judgement.

    `checks` are those that both sides made. `same_conversations` is whether both sides have the
    same conversations, which chance cannot change.
    """

    __test__ = False  # not a pytest class

    before: Side | None
    after: Side | None
    added: tuple[Counts, ...] = ()
    behaviour_changed: bool = False
    same_conversations: bool = False
    checks: Mapping[CheckKey, CheckPair] = field(default_factory=dict)
    added_before: tuple[Counts, ...] = ()

    @property
    def rate(self) -> CheckPair | None:
        """The pass rate of the test; None if a side has no repeats."""
        if self.before is None or self.after is None:
            return None
        old, new = self.before.counts, self.after.counts
        strength = Strength.EXPECTATIONS if self.same_conversations else None
        pair = CheckPair(old, new, self.added, self.added_before, strength=strength)
        return pair if old.n and new.n else None

    @property
    def rates(self) -> Iterator[tuple[CheckKey | None, CheckPair]]:
        """The pass rates of the test (None) and of its checks; none if a side has no repeats."""
        if rate := self.rate:
            yield None, rate
            yield from self.checks.items()


@dataclass(frozen=True, slots=True)
class TestEvidence:
    """How a test changed, with the strength of the evidence.

    `repeats_to_settle` on each side would confirm such a change in about 4 of 5 cases.
    `dropped_scores` are those whose mean fell by more than the threshold, or at all if the test
    newly breaks a limit. `dropped_checks` are the checks that pass less often, the surest first.
    `newly_failed` is whether the test failed, and it or one of its checks passed before.
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

    `paired` compares the runs by tests with different conversations; `run_regressed` is whether it
    confirms a drop. `failing` are the tests that make the exit code 1, `fails` whether it is 1.
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
    """How the behaviour of a test changed.

    `failures`: other checks fail. `outcomes`: other checks fail among those that both sides make.
    `checks`: other checks are made. `turns`: turns before the last with other answers. `erased`:
    texts are gone, so that not everything can be compared.
    """

    tools: bool = False
    arguments: bool = False
    failures: bool = False
    outcomes: bool = False
    checks: bool = False
    output: bool = False
    erased: bool = False
    turns: tuple[int, ...] = ()

    @property
    def any(self) -> bool:
        """Whether tools, arguments or outcomes changed."""
        return self.tools or self.arguments or self.outcomes


class Kind(StrEnum):
    """The kinds of change in reports, the most important first.

    Regressed: confirmed, by other expectations, or newly failed with one sample. Other behaviour,
    other checks, erased and other words: the result is unchanged.
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
    """A test in both runs, and how it changed; a side is None if the run does not define the test.

    `pair` has each conversation once, and added repeats. `config` is how the configuration of its
    file changed. `known` is false if a run did not test it, or may define it in a file that could
    not be loaded. `fails` is whether it makes the exit code 1.
    """

    __test__ = False  # not a pytest class

    key: QualifiedName
    before: Side | None
    after: Side | None
    behaviour: BehaviourChange
    pair: TestPair
    config: SuiteConfig | None
    known: bool = False
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
    def compared(self) -> bool:
        """Whether it ran on both sides."""
        return self.evidence.change in (Change.REGRESSED, Change.IMPROVED, Change.UNCHANGED)

    @property
    def pass_rates(self) -> tuple[float, float] | None:
        """The pass rates before and after, with added repeats; None if it was not compared."""
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
    def fell_by_errors(self) -> bool:
        """Whether all repeats of AFTER that did not pass errored, and no score fell."""
        if self.after is None or self.evidence.dropped_scores or self.added.n:
            return False
        not_passed = self.after.counts.n - self.after.counts.passed
        return 0 < self.after.errored == not_passed

    @property
    def kind(self) -> Kind:
        """The kind that the test is listed under."""
        match self.evidence.change:
            case Change.REGRESSED if self.evidence.strength is Strength.SUSPECTED:
                return Kind.SUSPECTED
            case Change.REGRESSED if self.evidence.strength is Strength.ONE_SAMPLE:
                return Kind.REGRESSED if self.evidence.newly_failed else Kind.SUSPECTED
            case Change.ADDED if self.after is None or not self.after.passed:
                return Kind.NEW_FAILING
            case Change.UNCHANGED if self.behaviour.any:
                return Kind.OTHER_BEHAVIOUR
            case Change.UNCHANGED if self.behaviour.checks:
                return Kind.OTHER_CHECKS
            case Change.UNCHANGED if self.behaviour.erased:
                return Kind.ERASED
            case Change.UNCHANGED if self.behaviour.output or self.behaviour.turns:
                return Kind.OTHER_WORDS
        return Kind(self.evidence.change)
