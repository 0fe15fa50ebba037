"""What a comparison of two runs says: immutable values, computed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from kindlm.history.comparison import Change
from kindlm.history.diff.behaviour import BehaviourChange
from kindlm.history.diff.calls import CallChange
from kindlm.history.diff.words import WordDiff
from kindlm.history.evidence import CheckEvidence, Strength, TestEvidence
from kindlm.history.statistics import Counts
from kindlm.history.verdict import StatusCounts
from kindlm.outcome import Status

__all__ = [
    "Answer",
    "CheckChange",
    "ConfigChange",
    "Figure",
    "Kind",
    "ModelChange",
    "QualifiedName",
    "Sequence",
    "SideFigures",
    "SuiteConfig",
    "TestDetails",
    "TestDiff",
]


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
class SideFigures:
    """A test in one run. Latency (ms), tokens, cost and drift are means over its repeats.

    `usual` is the execution that stands for the test, `alike` how many of its repeats behave as
    that one does. `scores` are those of each repeat that was judged, by criterion; `weighted` those
    of each repeat that was scored as a whole, as EvalView does, by their name. `elsewhere` counts
    the repeats whose conversations were held in an earlier run.
    """

    counts: StatusCounts
    status: Status
    usual: str | None = None
    alike: int = 0
    latency_ms: float | None = None
    tokens: float | None = None
    cost_usd: float | None = None
    drift: float | None = None
    scores: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    weighted: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    elsewhere: int = 0

    @property
    def all_scores(self) -> dict[str, tuple[float, ...]]:
        """The scores that may regress, by what gave them."""
        return {**self.weighted, **self.scores}


@dataclass(frozen=True, slots=True)
class TestDiff:
    """What became of a test. A side is None where the run's suite does not define it.

    `fails`: by what was asked for, this makes the exit code 1. `added` are the repeats that
    `kindlm settle` added to AFTER, `added_before` those that it added to BEFORE; the figures of
    both sides do not have them, their pass rates here do.
    """

    __test__ = False  # not a pytest class

    key: QualifiedName
    before: SideFigures | None
    after: SideFigures | None
    behaviour: BehaviourChange
    evidence: TestEvidence
    fails: bool
    added: Counts = Counts(0, 0)
    added_before: Counts = Counts(0, 0)

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
        old, new = self.before.counts, self.after.counts
        sides = (old, self.added_before), (new, self.added)
        before, after = (
            (side.passed + added.passed) / (side.tested + added.n) for side, added in sides
        )
        return before, after

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


@dataclass(frozen=True, slots=True)
class CheckChange:
    """A check of a test, over all repeats: how often it passed of how often it was decided.

    `message` and `failure_code` are those of a repeat that did not pass it: after, else before.
    `score_dropped`: its mean score fell by more than the threshold. `evidence` tells how sure it is
    that the check passes less often; None if it does not, or demands something else than before.
    """

    kind: str
    label: str
    passed_before: int
    of_before: int
    passed_after: int
    of_after: int
    score_before: float | None
    score_after: float | None
    failure_code: str | None
    message: str | None
    score_dropped: bool = False
    evidence: CheckEvidence | None = None

    @property
    def flipped(self) -> bool:
        """Whether it passes more, or less often than before."""
        asked = self.of_before > 0 and self.of_after > 0
        return asked and self.passed_before * self.of_after != self.passed_after * self.of_before

    @property
    def worse(self) -> bool:
        """Whether it passes less often than before."""
        return self.passed_after * self.of_before < self.passed_before * self.of_after


class Answer(NamedTuple):
    """How the answer to an earlier turn of a conversation changed, from 1."""

    turn: int
    words: WordDiff


class Sequence(NamedTuple):
    """Tools in the order they were called, and how many repeats called them so."""

    tools: tuple[str, ...]
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class TestDetails:
    """What changed inside a test: the executions that stand for it, side by side.

    `sequences` are the ways in which its repeats call tools, the most common first, if those of a
    side do it in several. Texts are None where they are the same; `system` and `user` are the first
    messages. `config` names the parts of its definition that changed, `answers` are those before
    the last turn of a conversation.
    """

    __test__ = False  # not a pytest class

    calls: tuple[CallChange, ...] = ()
    sequences: tuple[Sequence, ...] = ()
    output: WordDiff | None = None
    checks: tuple[CheckChange, ...] = ()
    error_before: str | None = None
    error_after: str | None = None
    system: WordDiff | None = None
    user: WordDiff | None = None
    config: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()


class ConfigChange(NamedTuple):
    """A place in a configuration, such as `tests[greets].expect.judge`, and what it said.

    `was_there` and `is_there` tell a null from nothing.
    """

    path: str
    before: Any
    after: Any
    was_there: bool
    is_there: bool


@dataclass(frozen=True, slots=True)
class SuiteConfig:
    """How the configuration of a suite changed; `left_out` counts changes beyond the first ones."""

    suite: str
    before: str
    after: str
    changes: tuple[ConfigChange, ...]
    left_out: int = 0


class Figure(NamedTuple):
    """The mean of a number over tests that ran on both sides, each test counting once.

    `interval` is the 95 % interval of the change, None for fewer than two tests.
    """

    name: str
    tests: int
    before: float
    after: float
    interval: tuple[float, float] | None


class ModelChange(NamedTuple):
    """The models that a target said it is, where they are others than before."""

    target: str
    before: tuple[str, ...]
    after: tuple[str, ...]
