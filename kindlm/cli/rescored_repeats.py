"""Which repeats of which tests are checked again, and which of them the run never came to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from kindlm.history.source_runs import SourceRun, SourceSuite
from kindlm.recording.request import Lacking
from kindlm.suite import Case, Suite

TestKey: TypeAlias = tuple[str, str, str]
"""Suite, name and target of a test."""


def tests_of(suite: Suite) -> Iterator[tuple[Case, str]]:
    """Yield the tests of a suite: cases with the targets that they run on."""
    for case in suite.cases:
        for target in case.targets:
            yield case, target


def repeats_of(
    now: Suite, then: SourceSuite, source: SourceRun
) -> Iterator[tuple[TestKey, Sequence[int]]]:
    """Yield the repeats of the tests that the run selected, or did not know.

    Those are the repeats that it planned, whether it came to them or not. Of a test that it did not
    know there is one, to say so; but not where the run only added repeats to some tests.
    """
    for case, target in tests_of(now):
        recorded = then.tests.get((case.name, target))
        if recorded is None:
            planned: Sequence[int] = (1,) if source.is_whole else ()
        else:
            planned = recorded.planned[:1] if case.skip else recorded.planned
        if planned:
            yield (now.name, case.name, target), planned


def lacking_of(source: SourceRun, repeats: Mapping[TestKey, Sequence[int]]) -> Lacking | None:
    """Return which of the repeats a run that was stopped never came to; None if it finished."""
    if source.state == "finished":
        return None
    ended = {
        (suite.name, *test): found.ended
        for suite in source.suites
        for test, found in suite.tests.items()
    }
    planned = {
        (*key, number) for key, numbers in repeats.items() if key in ended for number in numbers
    }
    never = frozenset(each for each in planned if each[3] not in ended[each[:3]])
    if not never:
        return None
    lacks = f"{len(never):,} of its {len(planned):,} executions did not run to their end"
    return Lacking(never, f"run {source.id} was {source.state}: {lacks}; finish it first")


def with_repeats(suite: Suite, repeats: Mapping[TestKey, Sequence[int]]) -> Suite:
    """Return the suite with as many repeats of each test as there are of it."""
    return replace(suite, cases=tuple(_repeated(suite, case, repeats) for case in suite.cases))


def _repeated(suite: Suite, case: Case, repeats: Mapping[TestKey, Sequence[int]]) -> Case:
    planned = (repeats.get((suite.name, case.name, target), ()) for target in case.targets)
    return replace(case, repeat=max(map(len, planned), default=1) or 1)
