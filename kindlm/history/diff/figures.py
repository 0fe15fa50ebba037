"""A test in one run in numbers, and the numbers of two runs as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from kindlm.history.diff.behaviour import usual
from kindlm.history.diff.samples import PlannedSamples, Sample
from kindlm.history.evidence.values import Side
from kindlm.history.statistics.intervals import mean_interval
from kindlm.history.statistics.tables import Counts
from kindlm.history.verdict import LimitedScores, StatusCounts, test_status
from kindlm.outcome import Outcome, Status

__all__ = ["Figure", "ModelChange", "compare_figures", "compare_models", "side_of"]


_WITHOUT_CODE = (Outcome.FAILED, Outcome.INCONCLUSIVE)
"""What stands for the code of a failed check that has none."""


def side_of(test: PlannedSamples) -> Side:
    """Return a test in one run in numbers: counts, and means over its executions."""
    samples = test.samples
    ended = [sample.status for sample in samples]
    counts = StatusCounts(
        ended.count(Status.PASSED), ended.count(Status.FAILED), ended.count(Status.ERRORED)
    )
    limited = None
    if test.score_limits is not None:
        every = tuple(score for each in samples for score in each.weighted.values())
        limited = LimitedScores(test.score_limits, every)
    stands, alike = usual(samples)
    judged = _by_name([sample.scores for sample in samples])
    weighted = _by_name([sample.weighted for sample in samples])
    means: dict[str, float] = {}
    for name in ("drift", "latency", "tokens", "cost"):
        known = [sample.measured[name] for sample in samples if name in sample.measured]
        if known:
            # Of one repeat it stays as it is: tokens are whole.
            means[name] = known[0] if len(samples) == 1 else sum(known) / len(known)
    for name, scored in (("judge", judged), ("score", weighted)):
        if scored:
            means[name] = fmean(fmean(scores) for scores in scored.values())
    return Side(
        counts=Counts(counts.passed, counts.tested),
        status=test_status(counts, test.pass_rate_min, limited),
        scores={**weighted, **judged},
        errored=counts.errored,
        means=means,
        usual=stands.id if stands else None,
        alike=alike,
        models=_models(samples),
        elsewhere=sum(sample.conversation != sample.id for sample in samples),
        failure_codes=frozenset(
            failure.code
            for sample in samples
            for failure in sample.failures
            if failure.code not in _WITHOUT_CODE
        ),
    )


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


def compare_figures(sides: Sequence[tuple[Side, Side]]) -> Iterator[Figure]:
    """Yield what was measured on both sides of tests that ran there.

    A test counts once, however often it was repeated.
    """
    for name in ("judge", "score", "drift", "latency", "tokens", "cost"):
        both = ((before.means.get(name), after.means.get(name)) for before, after in sides)
        pairs = [(old, new) for old, new in both if old is not None and new is not None]
        if pairs:
            olds, news = zip(*pairs, strict=True)
            interval = mean_interval([new - old for old, new in pairs])
            yield Figure(name, len(pairs), fmean(olds), fmean(news), interval)


def compare_models(tests: Iterable[tuple[str, Side, Side]]) -> Iterator[ModelChange]:
    """Yield the targets that answered as other models than before, in the order of the tests."""
    models: dict[str, tuple[set[str], set[str]]] = {}
    for target, *sides in tests:
        for known, side in zip(models.setdefault(target, (set(), set())), sides, strict=True):
            known.update(side.models)
    for target, (before, after) in models.items():
        if before != after and before and after:
            yield ModelChange(target, tuple(sorted(before)), tuple(sorted(after)))


def _models(samples: Sequence[Sample]) -> tuple[str, ...]:
    if len(samples) == 1:
        return samples[0].models
    return tuple(sorted({model for sample in samples for model in sample.models}))


def _by_name(repeats: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, ...]]:
    if not any(repeats):
        return {}
    names = dict.fromkeys(name for scores in repeats for name in scores)
    return {name: tuple(scores[name] for scores in repeats if name in scores) for name in names}
