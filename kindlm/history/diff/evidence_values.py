"""The values that evidence is made of and made from."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate, takewhile
from typing import Generic, NamedTuple, TypeVar

from kindlm.history.statistics.intervals import rate_difference_interval
from kindlm.history.statistics.paired import PairedComparison
from kindlm.history.statistics.pass_rates import Looks, pass_rate_drop
from kindlm.history.statistics.sequential import Settlement
from kindlm.history.statistics.tables import Counts, pooled
from kindlm.outcome import Status

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

    Other expectations: both sides are the same conversations, judged otherwise, as in a run and
    what was rescored from it. That is certain, and says nothing of the agent.
    """

    CONFIRMED = "confirmed"
    EXPECTATIONS = "other expectations"
    SUSPECTED = "suspected"
    ONE_SAMPLE = "one sample"


class FailOn(StrEnum):
    """What makes the exit code 1.

    By default confirmed regressions, those by other expectations, removed tests, and, without
    repeats, tests and checks that passed and don't any more. Any: every regression, suspected ones
    too. Behaviour: besides the default, every change of behaviour, even of tests that pass.
    """

    DEFAULT = "default"
    ANY = "any"
    BEHAVIOUR = "behaviour"
    NEVER = "never"


class Verdict(StrEnum):
    """What to say of the two runs. Regressed is what fails by default.

    Incomplete: what there is did not get worse for certain, but a part of AFTER is missing, or a
    suite of it could not be loaded. Neither that nor nothing compared comes of the evidence alone.
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

    `counts` are the repeats that passed, of all; `errored` of them came to no end that could be
    judged. `scores` holds the scores of each repeat that was scored, by what gave them: a criterion
    of a judge, a weighted score. `means` are those of its repeats, each test counting once: `judge`
    and `score` (0 to 1), `drift`, `latency` (ms), `tokens` and `cost` (USD), as far as measured.

    `usual` is the execution that stands for the test, `alike` how many repeats behave as it does.
    `elsewhere` counts the repeats whose conversations were held in an earlier run. `failure_codes`
    are those of all repeats.
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
    those of the repeats that were added to AFTER, `added_before` to BEFORE. `newly_failed`: its
    pass rate reached what the test has to reach, and does not any more. `strength` is how sure it
    is that it fell, once that is judged.
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
        return self.looks.after[-1]

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


@dataclass(frozen=True, slots=True)
class TestPair:
    """A test before and after; None where it is not defined. `checks` are those of both sides.

    `added` are the repeats that were added to AFTER later, in the order they were run in: at each
    look the decision to go on was taken from all before; `added_before` are those that were added
    to BEFORE. `same_conversations`: the repeats of both sides are the same ones, so that no chance
    is between them.
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

    `repeats_to_settle` is how many repeats on each side would confirm a change as large as this one
    in 4 of 5 cases. `dropped_scores` are those whose mean fell by more than the threshold,
    `dropped_checks` the checks that pass less often, the surest first. `newly_failed`: the test, or
    a check of a test that does not pass, went from passed to failed; where a side has one sample,
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
    """What became of all tests, and of the runs as a whole.

    `paired` is None if no test had conversations of its own on both sides; `run_regressed` says
    whether it confirms a drop. `failing` are the tests that make the exit code 1, which is `fails`.
    """

    tests: Mapping[Key, TestEvidence]
    paired: PairedComparison | None
    run_regressed: bool
    verdict: Verdict
    failing: tuple[Key, ...]
    fails: bool
