"""A test in one run in numbers, its checks in both, and the numbers of two runs as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from kindlm.history.diff.behaviour import usual
from kindlm.history.diff.evidence_values import BrokenLimits, CheckKey, CheckPair, Side, TestDiff
from kindlm.history.diff.samples import (
    SCORED,
    WEIGHTED,
    PlannedSamples,
    Sample,
    Scored,
    read_checks,
    score_name,
)
from kindlm.history.statistics import mean_interval
from kindlm.history.statistics.tables import Counts
from kindlm.history.verdict import LimitedScores, StatusCounts, test_status
from kindlm.outcome import Outcome, ScoreLimits, Status

_ROUNDING = 1e-9

_WITHOUT_CODE = (Outcome.FAILED, Outcome.INCONCLUSIVE)
"""What stands for the code of a failed check that has none."""


def side_of(test: PlannedSamples, other: PlannedSamples | None = None) -> Side:
    """Return a test in one run in numbers: counts, and means over its executions.

    A check grades if its scores say more than whether it passed, here or in the `other` run.
    """
    samples = test.samples
    ended = [sample.status for sample in samples]
    counts = StatusCounts(*map(ended.count, (Status.PASSED, Status.FAILED, Status.ERRORED)))
    limited = None if test.score_limits is None else _limited(test, test.score_limits)
    stands, alike = usual(samples)
    # Of one repeat they stay as they are: tokens are whole.
    means = dict(samples[0].measured) if len(samples) == 1 else {}
    if len(samples) > 1:
        for name in ("drift", "latency", "tokens", "cost"):
            if known := [each.measured[name] for each in samples if name in each.measured]:
                means[name] = sum(known) / len(known)
    graded = {scored for each in (other.samples if other else ()) for scored in each.graded}
    named, models, codes, elsewhere = dict[Scored, float](), set[str](), set[str](), 0
    for sample in samples:
        graded |= sample.graded
        named.update(sample.scores)
        models.update(sample.models)
        codes.update(failure.code for failure in sample.failures)
        elsewhere += sample.conversation != sample.id
    scores = {
        scored: tuple(each.scores[scored] for each in samples if scored in each.scores)
        for scored in sorted(filter(graded.__contains__, named), key=_place)
    }
    for name, kinds in (("score", WEIGHTED), ("judge", ("judge",))):
        if known := [fmean(found) for (kind, _), found in scores.items() if kind in kinds]:
            means[name] = fmean(known)
    return Side(
        counts=Counts(counts.passed, counts.tested),
        status=test_status(counts, test.pass_rate_min, limited),
        scores={score_name(*scored): found for scored, found in scores.items()},
        errored=counts.errored,
        means=means,
        usual=stands.id if stands else None,
        alike=alike,
        models=tuple(sorted(models)),
        elsewhere=elsewhere,
        failure_codes=frozenset(codes.difference(_WITHOUT_CODE)),
    )


def _place(scored: Scored) -> tuple[int, str]:
    """Return where a score stands: weighted ones first, then those of judges, as they come."""
    if scored[0] in SCORED:
        return int(scored[0] not in WEIGHTED), ""
    return 2, score_name(*scored)


def newly_broken_limits(
    before: PlannedSamples, after: PlannedSamples, *, same_conversations: bool
) -> BrokenLimits | None:
    """Return the limits of its scores that a test broke in AFTER only; None if there are none.

    A limit that BEFORE would have broken, too, says nothing of the agent. Of the same
    conversations, that it is demanded at all is what changed.
    """
    limits = after.score_limits
    if limits is None or not before.samples:
        return None
    limits_before = before.score_limits if same_conversations else limits
    told = _limited(after, limits).broken
    if not told or (limits_before is not None and _limited(before, limits_before).broken):
        return None
    names = (score_name(*scored) for scored, _ in _weighted(after))
    return BrokenLimits(told, frozenset(names))


def _limited(test: PlannedSamples, limits: ScoreLimits) -> LimitedScores:
    return LimitedScores(limits, tuple(score for _, score in _weighted(test)))


def _weighted(test: PlannedSamples) -> Iterator[tuple[Scored, float]]:
    """Yield the weighted scores of all repeats, with what gave them."""
    for sample in test.samples:
        yield from (item for item in sample.scores.items() if item[0][0] in WEIGHTED)


def pair_checks(
    before: PlannedSamples, after: PlannedSamples, is_other: Callable[[CheckKey], bool]
) -> dict[CheckKey, CheckPair]:
    """Return the checks that both sides made; none where all of them passed in all repeats.

    `is_other` says whether a check with the same label demands something else than before. A repeat
    that errored before it decided a check did not pass it.
    """
    samples = *before.samples, *after.samples
    if all(each.status is Status.PASSED and not each.failures for each in samples):
        return {}
    old, new = _counted(before.samples), _counted(after.samples)
    if after.samples and all(sample.status is Status.ERRORED for sample in after.samples):
        new = dict.fromkeys(old, Counts(0, len(after.samples))) | new
    return {
        check: CheckPair(
            counts,
            new[check],
            newly_failed=_reaches(counts, before) and not _reaches(new[check], after),
        )
        for check, counts in old.items()
        if check in new and not is_other(check)
    }


def _counted(samples: Sequence[Sample]) -> dict[CheckKey, Counts]:
    """Return the checks that a side made, with the repeats that count."""
    if len(samples) == 1:
        return {check: Counts(int(ok), 1) for check, ok in read_checks(samples[0].checks).items()}
    errored = sum(sample.status is Status.ERRORED for sample in samples)
    decided: Counter[CheckKey] = Counter()
    passed: Counter[CheckKey] = Counter()
    for sample in samples:
        for check, is_passed in read_checks(sample.checks).items():
            decided[check] += sample.status is not Status.ERRORED
            passed[check] += is_passed
    return {check: Counts(passed[check], times + errored) for check, times in decided.items()}


def _reaches(counts: Counts, test: PlannedSamples) -> bool:
    return counts.passed / counts.n >= test.pass_rate_min - _ROUNDING


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


def compare_figures(tests: Iterable[TestDiff]) -> Iterator[Figure]:
    """Yield what was measured on both sides of tests that ran there."""
    sides = [(each.before, each.after) for each in tests if each.compared]
    for name in ("judge", "score", "drift", "latency", "tokens", "cost"):
        both = ((old.means.get(name), new.means.get(name)) for old, new in sides if old and new)
        pairs = [(old, new) for old, new in both if old is not None and new is not None]
        if pairs:
            olds, news = zip(*pairs, strict=True)
            interval = mean_interval([new - old for old, new in pairs])
            yield Figure(name, len(pairs), fmean(olds), fmean(news), interval)


def compare_models(tests: Iterable[TestDiff]) -> Iterator[ModelChange]:
    """Yield the targets that answered as other models than before, in the order of the tests."""
    models: dict[str, tuple[set[str], set[str]]] = {}
    for test in tests:
        if test.before and test.after:
            before, after = models.setdefault(test.key.target, (set(), set()))
            before.update(test.before.models)
            after.update(test.after.models)
    for target, (before, after) in models.items():
        if before != after and before and after:
            yield ModelChange(target, tuple(sorted(before)), tuple(sorted(after)))
