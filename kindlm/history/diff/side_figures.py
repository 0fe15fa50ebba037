"""What a side of a comparison comes to: the executions of one test, in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kindlm.history.diff.behaviour import usual
from kindlm.history.diff.samples import PlannedSamples, Sample
from kindlm.history.diff.values import SideFigures
from kindlm.history.score_limits import LimitedScores
from kindlm.history.verdict import StatusCounts, test_status
from kindlm.outcome import Status

__all__ = ["side_figures"]


def side_figures(test: PlannedSamples) -> SideFigures:
    """Return a test in one run in numbers: counts, and means over its executions."""
    samples = test.samples
    ended = [sample.status for sample in samples]
    counts = StatusCounts(
        ended.count(Status.PASSED), ended.count(Status.FAILED), ended.count(Status.ERRORED)
    )
    found = usual(samples)
    return SideFigures(
        counts=counts,
        status=test_status(counts, test.pass_rate_min, _limited(test)),
        usual=found.sample.id if found else None,
        alike=found.alike if found else 0,
        latency_ms=_mean([sample.latency_ms for sample in samples]),
        tokens=_mean([sample.tokens for sample in samples]),
        cost_usd=_mean([sample.cost_usd for sample in samples]),
        drift=_mean([sample.drift for sample in samples]),
        scores=_scores([sample.scores for sample in samples]),
        weighted=_scores([sample.weighted for sample in samples]),
        models=_models(samples),
        elsewhere=sum(sample.conversation != sample.id for sample in samples),
    )


def _limited(test: PlannedSamples) -> LimitedScores | None:
    if test.score_limits is None:
        return None
    scores = [score for sample in test.samples for score in sample.weighted.values()]
    return LimitedScores(test.score_limits, tuple(scores))


def _mean(values: list[float | None]) -> float | None:
    if len(values) == 1:
        return values[0]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _models(samples: Sequence[Sample]) -> tuple[str, ...]:
    if len(samples) == 1:
        return samples[0].models
    return tuple(sorted({model for sample in samples for model in sample.models}))


def _scores(repeats: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, ...]]:
    if not any(repeats):
        return {}
    names = dict.fromkeys(name for scores in repeats for name in scores)
    return {name: tuple(scores[name] for scores in repeats if name in scores) for name in names}
