"""`RunDiff`: two recorded runs side by side, as every form of `kindlm diff` reads them.

Both runs are read once, test by test, in the same order; of each test a few numbers are kept. What
changed inside a test is read when it is asked for, so that a comparison of ten thousand tests costs
no more than their numbers and the few of them that are told in full.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

from kindlm.history.compared_attempts import Attempts, attempts_to_compare
from kindlm.history.diff.behaviour import BehaviourChange, compare_behaviour
from kindlm.history.diff.checks import pair_checks
from kindlm.history.diff.config import (
    Suite,
    SuiteConfig,
    compare_configs,
    is_other_demand,
    read_suites,
    unread_tests,
)
from kindlm.history.diff.details import TestDetails, read_details
from kindlm.history.diff.figures import (
    Figure,
    ModelChange,
    compare_figures,
    compare_models,
    side_of,
)
from kindlm.history.diff.samples import PlannedSamples, independent_samples, read_samples
from kindlm.history.diff.values import Kind, QualifiedName, TestDiff
from kindlm.history.evidence.judging import judge_pair
from kindlm.history.evidence.values import (
    Change,
    CheckKey,
    FailOn,
    RunEvidence,
    Side,
    TestEvidence,
    TestPair,
    Verdict,
)
from kindlm.history.groups import Group
from kindlm.history.json_text import read_json
from kindlm.history.run_view import RunView
from kindlm.history.settling import AddedRepeats, read_added

__all__ = ["DiffOptions", "RunDiff", "compare_runs"]

REGRESSION_THRESHOLD = 0.05


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """What is compared and what fails. `test` is a part of a test's or a suite's name, any case.

    Tests that are named so are judged as some of all. Of a comparison of one `suite`, by its name,
    the other suites have no part at all: it is that of two runs of this suite alone.
    """

    fail_on: FailOn = FailOn.DEFAULT
    test: str | None = None
    regression_threshold: float = REGRESSION_THRESHOLD
    suite: str | None = None

    @classmethod
    def of_project(cls, regression_threshold: float | None) -> DiffOptions:
        """Return the usual options with the threshold of a project, the default one for None."""
        if regression_threshold is None:
            return cls()
        return cls(regression_threshold=regression_threshold)


class _Read(NamedTuple):
    """A test as it was read: where it stands, both sides, and what it does otherwise.

    `pair` is what evidence is drawn from; None where nothing is known of what became of the test.
    """

    place: tuple[int, int, int]
    key: QualifiedName
    before: Side | None
    after: Side | None
    behaviour: BehaviourChange
    pair: TestPair | None


class RunDiff:
    """What became of the tests of a run. `db` is a read-only connection."""

    def __init__(
        self,
        db: sqlite3.Connection,
        before: RunView,
        after: RunView,
        options: DiffOptions,
    ) -> None:
        self._db = db
        self.before = before
        self.after = after
        self.options = options

    @cached_property
    def attempts(self) -> Attempts | None:
        """By which attempts executions count that were run again; None if none was."""
        return attempts_to_compare(self._db, self.before.runs, self.after.runs)

    @property
    def counted_attempts(self) -> Attempts:
        """The attempts that are read: where nothing was run again, the last one is the only one."""
        return self.attempts or Attempts.LAST

    @cached_property
    def tests(self) -> tuple[TestDiff, ...]:
        """The tests that a side defined, in the order of AFTER, then what only BEFORE has.

        Only those that were asked for.
        """
        return tuple(
            TestDiff(
                read.key,
                read.before,
                read.after,
                read.behaviour,
                self.evidence.tests.get(read.key, TestEvidence(Change.NOT_RUN)),
                read.key in self._failing,
                self._added.get(read.key, AddedRepeats()).total,
                self._added_before.get(read.key, AddedRepeats()).total,
            )
            for read in self._read
            if self._is_wanted(read.key)
        )

    @cached_property
    def kinds(self) -> dict[Kind, tuple[TestDiff, ...]]:
        """The tests by what is to be said of them, in the order of `Kind`; kinds with any."""
        found: dict[Kind, list[TestDiff]] = {kind: [] for kind in Kind}
        for test in self.tests:
            found[test.kind].append(test)
        return {kind: tuple(tests) for kind, tests in found.items() if tests}

    @cached_property
    def evidence(self) -> RunEvidence[QualifiedName]:
        """What the differences are worth: all of them judged together, whatever was asked for."""
        return judge_pair(
            self.pairs,
            fail_on=self.options.fail_on,
            regression_threshold=self.options.regression_threshold,
            asked=self._asked,
        )

    @cached_property
    def pairs(self) -> dict[QualifiedName, TestPair]:
        """All tests with their counts on both sides, and the repeats that were added to AFTER."""
        return {read.key: read.pair for read in self._read if read.pair is not None}

    @cached_property
    def _asked(self) -> frozenset[QualifiedName] | None:
        """The tests that were asked for; None if all are."""
        if not self.options.test:
            return None
        return frozenset(key for key in self.pairs if self._is_wanted(key))

    @cached_property
    def unloaded(self) -> tuple[str, ...]:
        """The suites that could not be loaded in AFTER: nobody knows how they would have done."""
        return tuple(suite.name for suite in self._suites_after if suite.broken)

    @cached_property
    def left_out(self) -> tuple[str, ...]:
        """The suites of BEFORE that AFTER was not asked to run."""
        known = {(suite.project, suite.name) for suite in self._suites_after}
        names = {suite.name for suite in self._suites_after if suite.broken}
        return tuple(
            suite.name
            for suite in self._suites_before
            if (suite.project, suite.name) not in known and suite.name not in names
        )

    @cached_property
    def compared(self) -> int:
        """How many tests ran on both sides."""
        return sum(test.compared for test in self.tests)

    @cached_property
    def lacks_results(self) -> bool:
        """Whether AFTER did not come to its end, or a shard of it is missing."""
        return not self.after.is_whole(self.options.suite)

    @cached_property
    def not_comparable(self) -> int:
        """How many tests ran in AFTER, and not in BEFORE, which did not come to its end."""
        if self.before.is_whole(self.options.suite):
            return 0
        return sum(
            test.change is Change.NOT_RUN and test.after is not None and test.after.counts.n > 0
            for test in self.tests
        )

    @cached_property
    def verdict(self) -> Verdict:
        """What to say of the two runs, in every form: never more than was seen of them."""
        lacking = self.lacks_results or bool(self.unloaded)
        if not self.compared:
            return Verdict.INCOMPLETE if lacking else Verdict.NOTHING_COMPARED
        found = self.evidence.verdict
        return Verdict.INCOMPLETE if lacking and found is not Verdict.REGRESSED else found

    @property
    def fails(self) -> bool:
        """Whether the exit code is 1, by what was asked for; also if AFTER is incomplete."""
        if self.options.fail_on is FailOn.NEVER:
            return False
        unseen = (Verdict.INCOMPLETE, Verdict.NOTHING_COMPARED)
        return self.evidence.fails or self.verdict in unseen

    @cached_property
    def has_several_suites(self) -> bool:
        """Whether a test has to be told with its suite."""
        return len({test.key.suite for test in self.tests}) > 1

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """The numbers of both runs as a whole."""
        sides = ((test.before, test.after) for test in self.tests if test.compared)
        return tuple(compare_figures([(old, new) for old, new in sides if old and new]))

    @cached_property
    def models(self) -> tuple[ModelChange, ...]:
        """The targets that answered as other models than before."""
        sides = ((test.key.target, test.before, test.after) for test in self.tests)
        return tuple(compare_models((name, old, new) for name, old, new in sides if old and new))

    @cached_property
    def configs(self) -> tuple[SuiteConfig, ...]:
        """How the configurations of the suites changed."""
        before = {(suite.project, suite.name): suite for suite in self._suites_before}
        found = (
            compare_configs(
                suite.name,
                (old.config_hash or "", suite.config_hash or ""),
                self._text(old.config),
                self._text(suite.config),
            )
            for suite in self._suites_after
            if (old := before.get((suite.project, suite.name))) is not None and not suite.broken
        )
        return tuple(config for config in found if config is not None)

    def details(self, test: TestDiff) -> TestDetails:
        """Return what changed inside a test."""
        config = self._config(test.key.suite)
        return read_details(self._db, self.before, self.after, self.counted_attempts, test, config)

    @cached_property
    def _suites_before(self) -> tuple[Suite, ...]:
        return self._suites(self.before)

    @cached_property
    def _suites_after(self) -> tuple[Suite, ...]:
        return self._suites(self.after)

    def _suites(self, side: RunView) -> tuple[Suite, ...]:
        wanted = self.options.suite
        suites = read_suites(self._db, side.runs)
        return tuple(suite for suite in suites if wanted is None or suite.name == wanted)

    @cached_property
    def _added(self) -> dict[QualifiedName, AddedRepeats]:
        return read_added(self._db, self.after.runs, self.counted_attempts)

    @cached_property
    def _added_before(self) -> dict[QualifiedName, AddedRepeats]:
        return read_added(self._db, self.before.runs, self.counted_attempts)

    @cached_property
    def _failing(self) -> frozenset[QualifiedName]:
        return frozenset(self.evidence.failing)

    @cached_property
    def _read(self) -> tuple[_Read, ...]:
        return tuple(sorted(self._reading(), key=lambda found: found.place))

    def _reading(self) -> Iterator[_Read]:
        before = {(suite.project, suite.name): suite for suite in self._suites_before}
        for number, suite in enumerate(self._suites_after):
            if not suite.broken:
                old = before.pop((suite.project, suite.name), None)
                yield from self._suite_tests(number, old, suite)
        for number, suite in enumerate(before.values()):
            if not suite.broken:
                yield from self._suite_tests(number, suite, None)

    def _suite_tests(
        self, number: int, before: Suite | None, after: Suite | None
    ) -> Iterator[_Read]:
        suite = after or before
        assert suite is not None
        unread = unread_tests(self._db, before, after)
        same_config = bool(before and after and before.config_hash == after.config_hash)
        sides = [
            read_samples(self._db, side.parts, self.counted_attempts) if side else iter(())
            for side in (before, after)
        ]
        for old, new in _side_by_side(*sides):
            test = new or old
            assert test is not None
            key = QualifiedName(suite.project or "", suite.name, test.name, test.target)
            figures = side_of(old) if old else None, side_of(new) if new else None
            behaviour = BehaviourChange()
            pair = TestPair(*figures)
            if old and new:
                if old.samples and new.samples:
                    behaviour = compare_behaviour(
                        old.samples, new.samples, self._arguments, same_config=same_config
                    )
                is_other = partial(self._is_other_demand, before, after, test.name)
                pair = _drawn(pair, old, new, is_other)
            if pair.same_conversations:
                # The same conversations need no texts to be the same.
                behaviour = replace(behaviour, erased=False)
            pair = replace(pair, behaviour_changed=behaviour.any or behaviour.erased)
            if key in self._added or key in self._added_before:
                nothing = AddedRepeats()
                added = self._added.get(key, nothing)
                pair = added.beside(pair, self._added_before.get(key, nothing))
            # Of a test that a run did not run, nobody knows what became of it.
            known = all(side.counts.n for side in figures if side is not None)
            if new is None:
                known = after is not None and test.identity not in unread
            place = new is None, number, test.ordinal
            yield _Read(place, key, *figures, behaviour, pair if known else None)

    def _is_other_demand(
        self, before: Suite | None, after: Suite | None, test: str, check: CheckKey
    ) -> bool:
        if before is None or after is None:
            return True
        if check.kind == "drift" and before.baseline != after.baseline:
            return True
        return is_other_demand(self._config(after.name), test, check)

    def _config(self, suite: str) -> SuiteConfig | None:
        return next((config for config in self.configs if config.suite == suite), None)

    def unread(self, project: str, suite: str) -> frozenset[tuple[str, str]]:
        """Return the tests of a suite, by name and target, whose files AFTER could not load."""
        before, after = (
            next((one for one in side if (one.project, one.name) == (project, suite)), None)
            for side in (self._suites_before, self._suites_after)
        )
        return unread_tests(self._db, before, after)

    def _is_wanted(self, key: QualifiedName) -> bool:
        if not self.options.test:
            return True
        wanted = self.options.test.casefold()
        return any(wanted in name.casefold() for name in (key.suite, key.name))

    def _arguments(self, digest: bytes) -> object:
        query = "SELECT body FROM contents WHERE digest = ?"
        row = self._db.execute(query, (digest,)).fetchone()
        return read_json(row[0]) if row else None

    def _text(self, ref: str | None) -> str | None:
        row = self._db.execute("SELECT body FROM contents WHERE ref = ?", (ref,)).fetchone()
        return row[0] if row else None


def compare_runs(
    db: sqlite3.Connection, before: str | Group, after: str | Group, options: DiffOptions
) -> RunDiff:
    """Compare two runs by their ids, or groups of shards."""
    return RunDiff(db, RunView(db, before), RunView(db, after), options)


def _side_by_side(
    before: Iterable[PlannedSamples], after: Iterable[PlannedSamples]
) -> Iterator[tuple[PlannedSamples | None, PlannedSamples | None]]:
    """Yield the tests of both sides in pairs; both are ordered by name and target."""
    olds, news = iter(before), iter(after)
    old, new = next(olds, None), next(news, None)
    while old is not None or new is not None:
        here = min(test.identity for test in (old, new) if test is not None)
        is_old = old is not None and old.identity == here
        is_new = new is not None and new.identity == here
        yield (old if is_old else None), (new if is_new else None)
        old = next(olds, None) if is_old else old
        new = next(news, None) if is_new else new


def _drawn(
    pair: TestPair,
    before: PlannedSamples,
    after: PlannedSamples,
    is_other: Callable[[CheckKey], bool],
) -> TestPair:
    """Return a test with what evidence is drawn from: each conversation once, and its checks."""
    old, new, is_same = independent_samples(before, after)
    if (old, new) != (before, after):
        pair = TestPair(side_of(old), side_of(new))
    return replace(pair, same_conversations=is_same, checks=pair_checks(old, new, is_other))
