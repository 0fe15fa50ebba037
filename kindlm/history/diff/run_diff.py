"""`RunDiff`: two recorded runs side by side, for every form of `kindlm diff`.

It reads both runs once, test by test, in the same order, and keeps only figures of each test.
Changes inside a test are read on request.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
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
    """The changes between two runs of one history.

    `attempts` are those by which rerun executions are compared, None if none was rerun, and
    `counted_attempts` those that are read. The suites `unloaded` could not be loaded in AFTER, and
    those `left_out` are only in BEFORE. `lacks_results` is whether results of AFTER are missing,
    `lacked_results` whether some of BEFORE are.

    `pairs` are all known tests with their results on both sides. They are judged together, and
    `evidence` is the judgement. `tests` are the requested ones: those of AFTER in their order, then
    those that only BEFORE has. `kinds` has them by their kind of change, in the order of `Kind`,
    and `compared` counts those that ran on both sides. `fails` is whether the exit code is 1, given
    the options.
    """

    def __init__(self, before: RunView, after: RunView, options: DiffOptions) -> None:
        self._db = before.db
        self.before = before
        self.after = after
        self.options = options
        self._config_between = cache(partial(config.compare_configs, self._db))
        self._runs = *before.runs, *after.runs
        self.attempts = samples.attempts_to_compare(self._db, self._runs)
        self.counted_attempts = self.attempts or samples.Attempts.FIRST
        self._suites = tuple(
            [suite for suite in config.read_suites(view) if self._has_suite(suite)]
            for view in (before, after)
        )
        self.unloaded = tuple(suite.name for suite in self._suites[1] if suite.broken)
        # The loaded files of each suite on both sides, first for the suites of AFTER.
        paired: dict[tuple[str | None, str], tuple[list[config.Suite], list[config.Suite]]] = {}
        for side in (1, 0):
            for suite in self._suites[side]:
                if not suite.broken:
                    paired.setdefault((suite.project, suite.name), ([], []))[side].append(suite)
        self._paired_suites = list(paired.values())
        gone = (old[0].name for old, new in self._paired_suites if not new)
        self.left_out = tuple(name for name in gone if name not in self.unloaded)
        unjudged = self._read_tests()
        self.pairs = {test.key: test.pair for test in unjudged if test.known}
        self.evidence = judge_pair(
            self.pairs,
            fail_on=options.fail_on,
            regression_threshold=options.regression_threshold,
            asked=frozenset(filter(self._is_wanted, self.pairs)),
        )
        found, failing = self.evidence.tests, frozenset(self.evidence.failing)
        self.tests = tuple(
            replace(test, evidence=found.get(key, test.evidence), fails=key in failing)
            for test in unjudged
            if self._is_wanted(key := test.key)
        )
        kinds: dict[Kind, list[TestDiff]] = {kind: [] for kind in Kind}
        for test in self.tests:
            kinds[test.kind].append(test)
        self.kinds = {kind: tests for kind, tests in kinds.items() if tests}
        self.compared = sum(test.compared for test in self.tests)
        self.has_several_suites = len({test.key.suite for test in self.tests}) > 1
        self.lacks_results = not self._is_whole(after)
        self.lacked_results = not self._is_whole(before)
        self.verdict = self.evidence.verdict if self.compared else Verdict.NOTHING_COMPARED
        if (self.lacks_results or self.unloaded) and self.verdict is not Verdict.REGRESSED:
            self.verdict = Verdict.INCOMPLETE
        is_unseen = self.verdict in (Verdict.INCOMPLETE, Verdict.NOTHING_COMPARED)
        self.fails = options.fail_on is not FailOn.NEVER and (self.evidence.fails or is_unseen)

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
            for new in after
            for old in before
            if old.path == new.path and (changed := self._config_between(old, new))
        )

    def details(self, test: TestDiff) -> TestDetails:
        """Return the changes inside a test."""
        return read_details(self, test)

    def _has_suite(self, suite: config.Suite) -> bool:
        """Return whether a suite is requested; one that could not be loaded has no project."""
        wanted = self.options.suites
        return wanted is None or any(
            suite.name == name and suite.project in (project, None) for project, name in wanted
        )

    def _is_whole(self, view: RunView) -> bool:
        """Return whether a run has all results of the compared suites."""
        if self.options.suites is None:
            return view.is_whole()
        return all(view.is_whole(name, project) for project, name in self.options.suites)

    def _is_wanted(self, key: QualifiedName) -> bool:
        wanted = (self.options.test or "").casefold()
        return any(wanted in name.casefold() for name in (key.suite, key.name))

    def _read_tests(self) -> list[TestDiff]:
        """Return all tests, not judged yet."""
        grading = samples.grading_checks(self._db, self._runs)
        read = partial(
            samples.read_samples, self._db, attempts=self.counted_attempts, grading=grading
        )
        added = [
            read_added(self._db, view.runs, self.counted_attempts)
            for view in (self.before, self.after)
        ]
        found: list[tuple[tuple[bool, int, int], TestDiff]] = []
        for before, after in self._paired_suites:
            olds = {(test.name, test.target): test for file in before for test in read(file)}
            for new in chain.from_iterable(map(read, after)):
                test = self._compare(olds.pop((new.name, new.target), None), new, added)
                found.append(((False, new.file.ordinal, new.ordinal), test))
            # A test that is not in AFTER may be defined in a file that could not be loaded.
            lacks_file = any(file.unread or file.name in self.unloaded for file in after)
            for old in olds.values():
                test = self._compare(old, None, added)
                test = replace(test, known=bool(after) and not lacks_file)
                found.append(((True, old.file.ordinal, old.ordinal), test))
        return [test for _, test in sorted(found, key=itemgetter(0))]

    def _compare(
        self,
        old: samples.PlannedSamples | None,
        new: samples.PlannedSamples | None,
        added: Iterable[Mapping[QualifiedName, AddedRepeats]],
    ) -> TestDiff:
        test = new or old
        assert test is not None
        key = QualifiedName(test.file.project or "", test.file.name, test.name, test.target)
        before = side_of(old) if old else None
        after = side_of(new) if new else None
        pair, behaviour, changed = TestPair(before, after), BehaviourChange(), None
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
        pair = with_added(pair, *(side.get(key) for side in added))
        known = all(side.counts.n for side in (before, after) if side)
        return TestDiff(key, before, after, behaviour, pair, changed, known)

    def _arguments(self, digest: str) -> object:
        text = samples.text_with(self._db, digest)
        # Each run has its own canary.
        return None if text is None else read_json(CANARY_TOKEN.sub("{{run.canary}}", text))


def compare_runs(
    db: sqlite3.Connection, before: str | Group, after: str | Group, options: DiffOptions
) -> RunDiff:
    """Compare two runs by their ids, or groups of shards."""
    return RunDiff(RunView(db, before), RunView(db, after), options)
