"""`RunDiff`: two recorded runs side by side, for every form of `kindlm diff`.

It reads both runs once, test by test, in the same order, and keeps only figures of each test.
Changes inside a test are read on request.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property, partial
from heapq import merge
from itertools import groupby
from operator import attrgetter, itemgetter

from kindlm.dataclass import dataclass, replace
from kindlm.history.diff.compared_tests import (
    Figure,
    ModelChange,
    compare_behaviour,
    compare_figures,
    compare_models,
    pair_checks,
    side_of,
)
from kindlm.history.diff.config import (
    Suite,
    SuiteConfig,
    compare_configs,
    is_other_demand,
    paired_files,
    read_suites,
)
from kindlm.history.diff.details import TestDetails, read_details
from kindlm.history.diff.evidence import judge_pair
from kindlm.history.diff.evidence_values import (
    BehaviourChange,
    Change,
    FailOn,
    Kind,
    RunEvidence,
    TestDiff,
    TestPair,
    Verdict,
)
from kindlm.history.diff.samples import (
    Attempts,
    PlannedSamples,
    attempts_to_compare,
    grading_kinds,
    independent_samples,
    read_samples,
)
from kindlm.history.groups import Group
from kindlm.history.recorded_attempts import body_of, read_servers
from kindlm.history.run_view import RunView
from kindlm.history.settling import AddedRepeats, read_added
from kindlm.plan import QualifiedName
from kindlm.strict_json import read_json
from kindlm.transcript import CANARY_TOKEN


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """What is compared, and what makes the exit code 1.

    `test` is a part of the name of a test or suite, in any case. `regression_threshold` is how far
    a mean score may fall. With a `suite`, its project and name, only this suite is compared.
    """

    fail_on: FailOn = FailOn.DEFAULT
    test: str | None = None
    regression_threshold: float | None = None
    suite: tuple[str, str] | None = None


class RunDiff:
    """The changes between two runs; `db` is a read-only connection."""

    def __init__(
        self, db: sqlite3.Connection, before: RunView, after: RunView, options: DiffOptions
    ) -> None:
        self._db = db
        self.before = before
        self.after = after
        self.options = options
        # The files of each test on both sides; `_unjudged_tests` fills it.
        self._files_of: dict[QualifiedName, tuple[Suite, Suite]] = {}
        self._config_between = cache(self._compare_files)

    @cached_property
    def attempts(self) -> Attempts | None:
        """The attempts by which rerun executions are compared; None if none was rerun."""
        return attempts_to_compare(self._db, [*self.before.runs, *self.after.runs])

    @property
    def counted_attempts(self) -> Attempts:
        """The attempts that are read; without reruns, each execution has one."""
        return self.attempts or Attempts.LAST

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
        return tuple(suite.name for suite in self._suites_of_sides[1] if suite.broken)

    @cached_property
    def left_out(self) -> tuple[str, ...]:
        """The suites of BEFORE that are not in AFTER."""
        loaded = ((old[0], new) for old, new in self._paired_suites if old)
        return tuple(old.name for old, new in loaded if not new and old.name not in self.unloaded)

    @cached_property
    def compared(self) -> int:
        """The number of tests that ran on both sides."""
        return sum(test.compared for test in self.tests)

    @cached_property
    def lacks_results(self) -> bool:
        """Whether results of AFTER are missing."""
        return not self.after.is_whole(self._suite_name)

    @cached_property
    def not_comparable(self) -> int:
        """The number of tests that ran in AFTER but not in an incomplete BEFORE."""
        if self.before.is_whole(self._suite_name):
            return 0
        return sum(
            test.change is Change.NOT_RUN and test.after is not None and test.after.counts.n > 0
            for test in self.tests
        )

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
    def figures(self) -> tuple[Figure, ...]:
        """The figures of both runs as a whole."""
        return tuple(compare_figures(self.tests))

    @cached_property
    def models(self) -> tuple[ModelChange, ...]:
        """The targets whose reported models have changed."""
        return tuple(compare_models(self.tests))

    @cached_property
    def configs(self) -> tuple[SuiteConfig, ...]:
        """How the configurations of the suites changed, file by file."""
        found = (
            self._config_between(old, new)
            for before, after in self._paired_suites
            for old, new in paired_files(before, after)
        )
        return tuple(config for config in found if config is not None)

    def config_of(self, test: QualifiedName) -> SuiteConfig | None:
        """Return how the configuration of a test changed; None if it did not."""
        files = self._files_of.get(test)
        return None if files is None else self._config_between(*files)

    def details(self, test: TestDiff) -> TestDetails:
        """Return the changes inside a test."""
        return read_details(self, test)

    @property
    def _suite_name(self) -> str | None:
        return None if self.options.suite is None else self.options.suite[1]

    @cached_property
    def _suites_of_sides(self) -> tuple[list[Suite], ...]:
        sides = list(read_suites(self.before)), list(read_suites(self.after))
        if self.options.suite is None:
            return sides
        project, name = self.options.suite
        # A suite that could not be loaded has no project.
        wanted = (name, project), (name, None)
        return tuple(
            [each for each in side if (each.name, each.project) in wanted] for side in sides
        )

    @cached_property
    def _paired_suites(self) -> tuple[tuple[Sequence[Suite], Sequence[Suite]], ...]:
        """The loaded files of each suite on both sides, first for the suites of AFTER."""
        before, after = (defaultdict[tuple[str | None, str], list[Suite]](list) for _ in range(2))
        for files, suites in zip((before, after), self._suites_of_sides, strict=True):
            for suite in suites:
                if not suite.broken:
                    files[suite.identity].append(suite)
        both = [(before.pop(identity, []), files) for identity, files in after.items()]
        return *both, *((files, []) for files in before.values())

    def _compare_files(self, old: Suite, new: Suite) -> SuiteConfig | None:
        texts = body_of(self._db, old.config_ref), body_of(self._db, new.config_ref)
        servers = read_servers(self._db, old.servers), read_servers(self._db, new.servers)
        hashes = old.config_hash or "", new.config_hash or ""
        return compare_configs(new.name, hashes, *texts, servers)

    @cached_property
    def _added(self) -> tuple[dict[QualifiedName, AddedRepeats], ...]:
        sides = self.before.runs, self.after.runs
        return tuple(read_added(self._db, runs, self.counted_attempts) for runs in sides)

    @cached_property
    def _grading(self) -> frozenset[str]:
        return grading_kinds(self._db, [*self.before.runs, *self.after.runs])

    @cached_property
    def _unjudged_tests(self) -> tuple[TestDiff, ...]:
        found = [
            ((test.after is None, number, *place), test)
            for number, files in enumerate(self._paired_suites)
            for place, test in self._read_suite(*files)
        ]
        return tuple(test for _, test in sorted(found, key=itemgetter(0)))

    def _read_suite(
        self, before: Sequence[Suite], after: Sequence[Suite]
    ) -> Iterator[tuple[tuple[int, int], TestDiff]]:
        """Yield the tests of a suite, each with its place in the files."""
        for old, new in _in_pairs(self._tests_in(before), self._tests_in(after)):
            test = new or old
            assert test is not None
            key = QualifiedName(test.file.project or "", test.file.name, test.name, test.target)
            sides = side_of(old, new) if old else None, side_of(new, old) if new else None
            if old and new:
                files = self._files_of[key] = old.file, new.file
                is_same = old.file.config_hash == new.file.config_hash
                behaviour = compare_behaviour(
                    old.samples, new.samples, self._arguments, same_config=is_same
                )
                own_old, own_new, is_same = independent_samples(old, new)
                if is_same:
                    # Without the texts, the conversations are known to be the same.
                    behaviour = replace(behaviour, erased=False)
                config = self._config_between(*files)
                is_other = partial(is_other_demand, config, *files, test.name)
                pair = TestPair(
                    sides[0] if own_old is old else side_of(own_old, own_new),
                    sides[1] if own_new is new else side_of(own_new, own_old),
                    behaviour_changed=behaviour.any or behaviour.erased,
                    same_conversations=is_same,
                    checks=pair_checks(own_old, own_new, is_other),
                )
            else:
                pair, behaviour = TestPair(*sides), BehaviourChange()
            if any(key in added for added in self._added):
                added_before, added = (side.get(key, AddedRepeats()) for side in self._added)
                pair = added.beside(pair, added_before)
            known = all(side.counts.n for side in sides if side is not None)
            if new is None:
                is_unread = any(file.unread for file in after) or key.suite in self.unloaded
                known = bool(after) and not is_unread
            yield (test.file.ordinal, test.ordinal), TestDiff(key, *sides, behaviour, pair, known)

    def _tests_in(self, files: Sequence[Suite]) -> Iterator[PlannedSamples]:
        """Yield the tests in the files of a suite, ordered by name and target."""
        read = partial(
            read_samples, self._db, attempts=self.counted_attempts, grading=self._grading
        )
        return merge(*map(read, files), key=attrgetter("identity"))

    def _is_wanted(self, key: QualifiedName) -> bool:
        if not self.options.test:
            return True
        wanted = self.options.test.casefold()
        return any(wanted in name.casefold() for name in (key.suite, key.name))

    def _arguments(self, digest: bytes) -> object:
        query = "SELECT body FROM contents WHERE digest = ?"
        row = self._db.execute(query, (digest,)).fetchone()
        # Each run has its own canary.
        return read_json(CANARY_TOKEN.sub("{{run.canary}}", row[0])) if row else None


def compare_runs(
    db: sqlite3.Connection, before: str | Group, after: str | Group, options: DiffOptions
) -> RunDiff:
    """Compare two runs by their ids, or groups of shards."""
    return RunDiff(db, RunView(db, before), RunView(db, after), options)


def _in_pairs(
    before: Iterable[PlannedSamples], after: Iterable[PlannedSamples]
) -> Iterator[tuple[PlannedSamples | None, PlannedSamples | None]]:
    """Yield the tests of both sides in pairs; both are ordered by name and target."""
    olds = ((test.identity, 0, test) for test in before)
    news = ((test.identity, 1, test) for test in after)
    for _, alike in groupby(merge(olds, news, key=itemgetter(0, 1)), key=itemgetter(0)):
        found = {side: test for _, side, test in alike}
        yield found.get(0), found.get(1)
