"""`RunDiff`: two recorded runs side by side, for every form of `kindlm diff`.

It reads both runs once, test by test, in the same order, and keeps only figures of each test.
Changes inside a test are read on request.
"""

from __future__ import annotations

import sqlite3
from functools import cache, cached_property, partial
from itertools import chain
from operator import itemgetter

from kindlm.dataclass import dataclass, replace
from kindlm.history.diff import compared_tests, config, samples
from kindlm.history.diff.compared_tests import side_of
from kindlm.history.diff.details import TestDetails, read_details
from kindlm.history.diff.evidence import judge_pair
from kindlm.history.diff.evidence_values import (
    BehaviourChange,
    FailOn,
    Kind,
    RunEvidence,
    TestDiff,
    TestPair,
    Verdict,
)
from kindlm.history.groups import Group
from kindlm.history.run_view import RunView
from kindlm.history.settling import AddedRepeats, read_added, with_added
from kindlm.plan import QualifiedName
from kindlm.strict_json import read_json
from kindlm.transcript import CANARY_TOKEN


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """What is compared, and what makes the exit code 1.

    `test` is a part of the name of a test or suite, in any case. `regression_threshold` is how far
    a mean score may fall. With `suites`, only those of these projects and names are compared.
    `note` says what a reader must know of the choice of the two runs.
    """

    fail_on: FailOn = FailOn.DEFAULT
    test: str | None = None
    regression_threshold: float | None = None
    suites: frozenset[tuple[str, str]] | None = None
    note: str | None = None


class RunDiff:
    """The changes between two runs of one history."""

    def __init__(self, before: RunView, after: RunView, options: DiffOptions) -> None:
        self._db = before.db
        self.before = before
        self.after = after
        self.options = options
        self._config_between = cache(partial(config.compare_configs, self._db))

    @cached_property
    def attempts(self) -> samples.Attempts | None:
        """The attempts by which rerun executions are compared; None if none was rerun."""
        return samples.attempts_to_compare(self._db, self._runs)

    @property
    def counted_attempts(self) -> samples.Attempts:
        """The attempts that are read; without reruns, each execution has one."""
        return self.attempts or samples.Attempts.LAST

    @cached_property
    def tests(self) -> tuple[TestDiff, ...]:
        """The requested tests: those of AFTER in their order, then those that only BEFORE has."""
        found, failing = self.evidence.tests, frozenset(self.evidence.failing)
        return tuple(
            replace(test, evidence=found.get(key, test.evidence), fails=key in failing)
            for test in self._unjudged_tests
            if self._is_wanted(key := test.key)
        )

    @cached_property
    def kinds(self) -> dict[Kind, tuple[TestDiff, ...]]:
        """The tests by their kind of change, in the order of `Kind`, without empty kinds."""
        found: dict[Kind, list[TestDiff]] = {kind: [] for kind in Kind}
        for test in self.tests:
            found[test.kind].append(test)
        return {kind: tuple(tests) for kind, tests in found.items() if tests}

    @cached_property
    def evidence(self) -> RunEvidence[QualifiedName]:
        """The evidence for the changes; all tests are judged together."""
        return judge_pair(
            self.pairs,
            fail_on=self.options.fail_on,
            regression_threshold=self.options.regression_threshold,
            asked=frozenset(filter(self._is_wanted, self.pairs)),
        )

    @cached_property
    def pairs(self) -> dict[QualifiedName, TestPair]:
        """All known tests with their results on both sides, for the judgement."""
        return {test.key: test.pair for test in self._unjudged_tests if test.known}

    @cached_property
    def unloaded(self) -> tuple[str, ...]:
        """The suites that could not be loaded in AFTER."""
        return tuple(suite.name for suite in self._suites[1] if suite.broken)

    @cached_property
    def left_out(self) -> tuple[str, ...]:
        """The suites of BEFORE that are not in AFTER."""
        gone = (old[0].name for old, new in self._paired_suites if not new)
        return tuple(name for name in gone if name not in self.unloaded)

    @cached_property
    def compared(self) -> int:
        """The number of tests that ran on both sides."""
        return sum(test.compared for test in self.tests)

    @cached_property
    def lacks_results(self) -> bool:
        """Whether results of AFTER are missing."""
        return not self._is_whole(self.after)

    @cached_property
    def lacked_results(self) -> bool:
        """Whether results of BEFORE are missing."""
        return not self._is_whole(self.before)

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict on the two runs."""
        found = self.evidence.verdict if self.compared else Verdict.NOTHING_COMPARED
        lacking = self.lacks_results or bool(self.unloaded)
        return Verdict.INCOMPLETE if lacking and found is not Verdict.REGRESSED else found

    @property
    def fails(self) -> bool:
        """Whether the exit code is 1, given the options."""
        if self.options.fail_on is FailOn.NEVER:
            return False
        unseen = (Verdict.INCOMPLETE, Verdict.NOTHING_COMPARED)
        return self.evidence.fails or self.verdict in unseen

    @cached_property
    def has_several_suites(self) -> bool:
        """Whether the tests are of several suites."""
        return len({test.key.suite for test in self.tests}) > 1

    @cached_property
    def judges(self) -> tuple[compared_tests.ModelChange, ...]:
        """The models that judged in both runs, and answered as other models than before."""
        before, after = (samples.read_judges(self._db, suites) for suites in self._suites)
        both = {model: (before[model], after[model]) for model in before if model in after}
        return tuple(compared_tests.changed_models(both))

    @cached_property
    def configs(self) -> tuple[config.SuiteConfig, ...]:
        """How the configurations of the suites changed, file by file."""
        return tuple(
            changed
            for before, after in self._paired_suites
            for old, new in config.paired_files(before, after)
            if (changed := self._config_between(old, new)) is not None
        )

    def details(self, test: TestDiff) -> TestDetails:
        """Return the changes inside a test."""
        return read_details(self, test)

    @property
    def _runs(self) -> tuple[str, ...]:
        return *self.before.runs, *self.after.runs

    @cached_property
    def _suites(self) -> tuple[list[config.Suite], ...]:
        """The requested suites of both sides; one that could not be loaded has no project."""
        return tuple(
            [suite for suite in config.read_suites(view) if self._has_suite(suite)]
            for view in (self.before, self.after)
        )

    @cached_property
    def _paired_suites(self) -> list[tuple[list[config.Suite], list[config.Suite]]]:
        """The loaded files of each suite on both sides, first for the suites of AFTER."""
        found: dict[tuple[str | None, str], tuple[list[config.Suite], list[config.Suite]]] = {}
        for side in (1, 0):
            for suite in self._suites[side]:
                if not suite.broken:
                    found.setdefault((suite.project, suite.name), ([], []))[side].append(suite)
        return list(found.values())

    def _has_suite(self, suite: config.Suite) -> bool:
        wanted = self.options.suites
        return wanted is None or any(
            suite.name == name and suite.project in (project, None) for project, name in wanted
        )

    def _is_whole(self, view: RunView) -> bool:
        """Return whether a run has all results of the compared suites."""
        if self.options.suites is None:
            return view.is_whole()
        return all(view.is_whole(name, project) for project, name in self.options.suites)

    @cached_property
    def _added(self) -> tuple[dict[QualifiedName, AddedRepeats], ...]:
        sides = self.before.runs, self.after.runs
        return tuple(read_added(self._db, runs, self.counted_attempts) for runs in sides)

    @cached_property
    def _unjudged_tests(self) -> tuple[TestDiff, ...]:
        grading = samples.grading_checks(self._db, self._runs)
        read = partial(
            samples.read_samples, self._db, attempts=self.counted_attempts, grading=grading
        )
        found: list[tuple[tuple[bool, int, int], TestDiff]] = []
        for before, after in self._paired_suites:
            olds = {(test.name, test.target): test for file in before for test in read(file)}
            for new in chain.from_iterable(map(read, after)):
                test = self._compare(olds.pop((new.name, new.target), None), new)
                found.append(((False, new.file.ordinal, new.ordinal), test))
            # A test that is not in AFTER may be defined in a file that could not be loaded.
            lacks_file = any(file.unread or file.name in self.unloaded for file in after)
            for old in olds.values():
                test = replace(self._compare(old, None), known=bool(after) and not lacks_file)
                found.append(((True, old.file.ordinal, old.ordinal), test))
        return tuple(test for _, test in sorted(found, key=itemgetter(0)))

    def _compare(
        self, old: samples.PlannedSamples | None, new: samples.PlannedSamples | None
    ) -> TestDiff:
        test = new or old
        assert test is not None
        key = QualifiedName(test.file.project or "", test.file.name, test.name, test.target)
        before = side_of(old) if old else None
        after = side_of(new) if new else None
        pair = TestPair(before, after)
        behaviour = BehaviourChange()
        changed = None
        if old and new:
            changed = self._config_between(old.file, new.file)
            own_old, own_new, is_same = samples.independent_samples(old, new)
            is_same_config = old.file.config_hash == new.file.config_hash
            behaviour = compared_tests.compare_behaviour(
                old.samples, new.samples, self._arguments, same_config=is_same_config
            )
            if is_same:
                # Without the texts, the conversations are known to be the same.
                behaviour = replace(behaviour, erased=False)
            is_other = partial(config.is_other_demand, changed, old.file, new.file, test.name)
            pair = TestPair(
                before if own_old is old else side_of(own_old),
                after if own_new is new else side_of(own_new),
                behaviour_changed=behaviour.any or behaviour.erased,
                same_conversations=is_same,
                checks=compared_tests.pair_checks(own_old, own_new, is_other),
            )
        pair = with_added(pair, *(added.get(key) for added in self._added))
        known = all(side.counts.n for side in (before, after) if side)
        return TestDiff(key, before, after, behaviour, pair, changed, known)

    def _is_wanted(self, key: QualifiedName) -> bool:
        if not self.options.test:
            return True
        wanted = self.options.test.casefold()
        return any(wanted in name.casefold() for name in (key.suite, key.name))

    def _arguments(self, digest: str) -> object:
        text = samples.text_with(self._db, digest)
        # Each run has its own canary.
        return None if text is None else read_json(CANARY_TOKEN.sub("{{run.canary}}", text))


def compare_runs(
    db: sqlite3.Connection, before: str | Group, after: str | Group, options: DiffOptions
) -> RunDiff:
    """Compare two runs by their ids, or groups of shards."""
    return RunDiff(RunView(db, before), RunView(db, after), options)
