"""Compares one test in two runs: its counts, its checks, and its behaviour.

Behaviour is which tools are called, and which checks do not pass. It counts as changed only if most
repeats of one side do what no repeat of the other side does: an agent that varies has not changed
if it only does one thing more often than before. Different checks change the test, not the
behaviour of the agent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import chain
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from kindlm.history.diff.evidence_values import BehaviourChange, CheckKey, CheckPair, Side, TestDiff
from kindlm.history.diff.samples import (
    SCORED,
    WEIGHTED,
    Failure,
    PlannedSamples,
    Sample,
    Scored,
    read_checks,
    score_name,
)
from kindlm.history.statistics import mean_interval
from kindlm.history.statistics.tables import Counts
from kindlm.history.verdict import LimitedScores, StatusCounts, test_status
from kindlm.matching import canonical
from kindlm.outcome import Status

_ROUNDING = 1e-9

T = TypeVar("T")


def side_of(test: PlannedSamples) -> Side:
    """Return the counts of a test in one run, and means over its executions."""
    samples = test.samples
    ended = [sample.status for sample in samples]
    counts = StatusCounts(*map(ended.count, (Status.PASSED, Status.FAILED, Status.ERRORED)))
    stands, alike = usual(samples)
    measured = defaultdict[str, list[float]](list)
    found = defaultdict[Scored, list[float]](list)
    for sample in samples:
        for name, value in sample.measured.items():
            measured[name].append(value)
        for scored, score in sample.scores.items():
            found[scored].append(score)
    means = {name: sum(known) / len(known) for name, known in measured.items()}
    # Weighted scores come first, then those of judges.
    order = sorted(found, key=lambda each: (each[0] not in WEIGHTED, each[0] not in SCORED))
    for name, kinds in (("score", WEIGHTED), ("judge", ("judge",))):
        if known := [fmean(found[each]) for each in order if each[0] in kinds]:
            means[name] = fmean(known)
    limited = None
    if test.score_limits is not None:
        weighted = tuple(chain.from_iterable(found[each] for each in order if each[0] in WEIGHTED))
        limited = LimitedScores(test.score_limits, weighted, counts.passed + counts.failed)
    return Side(
        counts=Counts(counts.passed, counts.tested),
        status=test_status(counts, test.pass_rate_min, limited),
        scores={score_name(*each): tuple(found[each]) for each in order},
        errored=counts.errored,
        means=means,
        usual=stands.id if stands else None,
        alike=alike,
        models=tuple(sorted({model for sample in samples for model in sample.models})),
        broken_limits=() if limited is None else limited.broken,
    )


def usual(samples: Sequence[Sample]) -> tuple[Sample | None, int]:
    """Return the execution that represents a test, and the number of repeats that behave like it.

    It is the first with the most common tools and failures, then arguments, then text.
    """
    if len(samples) < 2:
        return (samples[0], 1) if samples else (None, 0)
    alike = _most_common(samples, lambda sample: (_tools(sample), sample.failures))
    same_calls = _most_common(alike, lambda sample: sample.calls)
    return _most_common(same_calls, lambda sample: sample.output)[0], len(alike)


def _most_common(samples: Sequence[Sample], key: Callable[[Sample], Hashable]) -> list[Sample]:
    wanted = Counter(map(key, samples)).most_common(1)[0][0]
    return [sample for sample in samples if key(sample) == wanted]


def _tools(sample: Sample) -> tuple[tuple[int, str], ...]:
    """Return the called tools in order, each with its turn of the conversation."""
    return tuple((call.turn, call.tool) for call in sample.calls)


def pair_checks(
    before: PlannedSamples, after: PlannedSamples, is_other: Callable[[CheckKey], bool]
) -> dict[CheckKey, CheckPair]:
    """Return the checks that both sides made; {} if all of them passed in all repeats.

    `is_other` returns whether a check with the same label has another demand than before. A repeat
    that errored before it decided a check did not pass it.
    """
    samples = *before.samples, *after.samples
    if all(each.status is Status.PASSED and not each.failures for each in samples):
        return {}
    old, new = _count_checks(before.samples), _count_checks(after.samples)
    if after.samples and all(sample.status is Status.ERRORED for sample in after.samples):
        new = dict.fromkeys(old, Counts(0, len(after.samples))) | new
    pairs = {}
    for check, counts in old.items():
        if check in new and not is_other(check):
            failed = not _meets_pass_rate(new[check], after)
            newly_failed = failed and _meets_pass_rate(counts, before)
            pairs[check] = CheckPair(counts, new[check], newly_failed=newly_failed)
    return pairs


def _count_checks(samples: Sequence[Sample]) -> dict[CheckKey, Counts]:
    """Return the checks of a side, each over the repeats that decided it or errored."""
    errored = sum(sample.status is Status.ERRORED for sample in samples)
    found: dict[CheckKey, Counts] = {}
    for sample in samples:
        decides = sample.status is not Status.ERRORED
        for check, code in read_checks(sample.checks).items():
            passed, n = found.get(check, (0, errored))
            found[check] = Counts(passed + (code is None), n + decides)
    return found


def _meets_pass_rate(counts: Counts, test: PlannedSamples) -> bool:
    return counts.passed / counts.n >= test.pass_rate_min - _ROUNDING


def compare_behaviour(
    before: Sequence[Sample],
    after: Sequence[Sample],
    arguments: Callable[[str], Any],
    *,
    same_config: bool = False,
) -> BehaviourChange:
    """Return the behaviour changes of a test that ran on both sides.

    `arguments` returns the arguments of a call by their digest. The configuration of the suite
    includes the code of scenarios.
    """
    if not (before and after):
        return BehaviourChange()
    everything = (*before, *after)
    calls_differ = len({sample.calls for sample in everything}) > 1
    tools = calls_differ and _replaced(before, after, lambda sample: {_tools(sample)})
    failures = _replaced(before, after, lambda sample: sample.failures)
    turns = sorted({turn for sample in everything for turn in sample.earlier})
    return BehaviourChange(
        tools=tools,
        arguments=calls_differ and not tools and _other_arguments(before, after, arguments),
        failures=failures,
        outcomes=failures if same_config else _other_outcomes(before, after),
        checks=_other_checks(before, after, same_config),
        output=_differ((each.output for each in before), (each.output for each in after)),
        turns=tuple(
            turn
            for turn in turns
            if _differ(
                (each.earlier.get(turn) for each in before),
                (each.earlier.get(turn) for each in after),
            )
        ),
        erased=any(sample.erased for sample in everything),
    )


def _replaced(
    before: Sequence[T], after: Sequence[T], items_of: Callable[[T], AbstractSet[Hashable]]
) -> bool:
    """Return whether most of one side have an item that none of the other side has."""
    old, new = list(map(items_of, before)), list(map(items_of, after))
    return old != new and (_lost(old, new) or _lost(new, old))


def _lost(side: Sequence[AbstractSet[Hashable]], other: Sequence[AbstractSet[Hashable]]) -> bool:
    gone = frozenset[Hashable]().union(*side).difference(*other)
    return any(2 * sum(each in found for found in side) > len(side) for each in gone)


def _differ(before: Iterable[str | None], after: Iterable[str | None]) -> bool:
    """Return whether both sides have texts, and none in common."""
    old, new = set(before) - {None}, set(after) - {None}
    return bool(old) and bool(new) and old.isdisjoint(new)


def _other_outcomes(before: Sequence[Sample], after: Sequence[Sample]) -> bool:
    """Return whether other checks fail, of those that both sides make, or other errors occur."""
    old, new = (
        {label for each in side for label in _labels(each.checks)} for side in (before, after)
    )
    both = old & new

    def counted(sample: Sample) -> set[Failure]:
        return {each for each in sample.failures if each.kind == "error" or each[:2] in both}

    return _replaced(before, after, counted)


def _other_checks(before: Sequence[Sample], after: Sequence[Sample], same_config: bool) -> bool:
    """Return whether one side makes checks that the other side does not.

    In a scenario, a label may differ every time, for example by a random number. So with the same
    configuration and a single execution on a side, only the number of checks of each kind counts.
    """
    labels_count = not same_config or min(len(before), len(after)) > 1

    def made(sample: Sample) -> AbstractSet[tuple[str, str | int]]:
        labels = _labels(sample.checks)
        # The first of a kind, the second and so on.
        numbers = Counter(kind for kind, _ in labels).items()
        kinds = {(kind, number) for kind, of in numbers for number in range(of)}
        return kinds | labels if labels_count else kinds

    return _replaced(before, after, made)


@lru_cache(maxsize=4096)
def _labels(checks: str) -> frozenset[tuple[str, str]]:
    """Return the kinds and the labels of an execution's checks."""
    return frozenset((check.kind, check.label) for check in read_checks(checks))


def _other_arguments(
    before: Sequence[Sample], after: Sequence[Sample], arguments: Callable[[str], Any]
) -> bool:
    """Return whether arguments changed, compared by call and key, in the most common sequence.

    A value that differs in each repeat, such as a free-text reason, is no change.
    """
    tools = Counter(map(_tools, [*before, *after])).most_common(1)[0][0]
    old, new = (
        [[call.digest for call in sample.calls] for sample in side if _tools(sample) == tools]
        for side in (before, after)
    )
    digests = [set(call) for call in zip(*old, *new, strict=True)]
    compared = [n for n, each in enumerate(digests) if len(each) > 1 and None not in each]

    def passed(calls: Sequence[str | None]) -> set[tuple[int | str, ...]]:
        """Return the keys of each call, alone and with their values."""
        found = set[tuple[int | str, ...]]()
        for place in compared:
            value = arguments(calls[place] or "")
            if not isinstance(value, dict):
                found.add((place, canonical(value)))
                continue
            for key in value:
                found |= {(place, key), (place, key, canonical(value[key]))}
        return found

    return bool(old and new) and _replaced(old, new, passed)


class Figure(NamedTuple):
    """The means of a number over tests that ran on both sides, and the change's 95 % interval."""

    name: str
    tests: int
    before: float
    after: float
    interval: tuple[float, float] | None


class ModelChange(NamedTuple):
    """The models that a target, or a model that judges, reported, if they have changed."""

    target: str
    before: tuple[str, ...]
    after: tuple[str, ...]


def compare_figures(tests: Iterable[TestDiff]) -> Iterator[Figure]:
    """Yield the figures that were measured on both sides of tests that ran there."""
    # Without repeats, a side has no means.
    sides = [(each.before.means, each.after.means) for each in tests if each.before and each.after]
    for name in ("judge", "score", "drift", "latency", "tokens", "cost"):
        both = ((old.get(name), new.get(name)) for old, new in sides)
        pairs = [(old, new) for old, new in both if old is not None and new is not None]
        if pairs:
            olds, news = zip(*pairs, strict=True)
            interval = mean_interval([new - old for old, new in pairs])
            yield Figure(name, len(pairs), fmean(olds), fmean(news), interval)


def compare_models(tests: Iterable[TestDiff]) -> Iterator[ModelChange]:
    """Return the targets whose reported models have changed, in the order of the tests."""
    models: dict[str, tuple[set[str], set[str]]] = {}
    for test in tests:
        if test.before and test.after:
            before, after = models.setdefault(test.key.target, (set(), set()))
            before.update(test.before.models)
            after.update(test.after.models)
    return changed_models(models)


def changed_models(models: Mapping[str, tuple[set[str], set[str]]]) -> Iterator[ModelChange]:
    """Yield which of these reported other models than before; none is no other model."""
    for target, (before, after) in models.items():
        if before != after and before and after:
            yield ModelChange(target, tuple(sorted(before)), tuple(sorted(after)))
