"""The numbers of two runs as a whole: means over the tests that ran on both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from kindlm.history.diff.values import Figure, ModelChange, SideFigures, TestDiff
from kindlm.history.statistics import mean_interval

__all__ = ["compare_figures", "compare_models"]


def compare_figures(tests: Sequence[TestDiff]) -> Iterator[Figure]:
    """Yield what was measured on both sides. A test counts once, however often it was repeated."""
    numbers: dict[str, Callable[[SideFigures], float | None]] = {
        "judge": lambda side: _mean(side.scores),
        "score": lambda side: _mean(side.weighted),
        "drift": lambda side: side.drift,
        "latency": lambda side: side.latency_ms,
        "tokens": lambda side: side.tokens,
        "cost": lambda side: side.cost_usd,
    }
    for name, number in numbers.items():
        pairs = list(_pairs(tests, number))
        if pairs:
            old, new = ([pair[side] for pair in pairs] for side in (0, 1))
            changes = [after - before for before, after in pairs]
            yield Figure(name, len(pairs), fmean(old), fmean(new), mean_interval(changes))


def compare_models(tests: Iterable[TestDiff]) -> Iterator[ModelChange]:
    """Yield the targets that answered as other models than before, in the order of the tests."""
    sides: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for test in tests:
        if test.before and test.after:
            known = sides.setdefault(test.key.target, ({}, {}))
            known[0].update(dict.fromkeys(test.before.models))
            known[1].update(dict.fromkeys(test.after.models))
    for target, (before, after) in sides.items():
        if before.keys() != after.keys() and before and after:
            yield ModelChange(target, tuple(sorted(before)), tuple(sorted(after)))


def _mean(scores: Mapping[str, tuple[float, ...]]) -> float | None:
    means = [fmean(each) for each in scores.values()]
    return fmean(means) if means else None


def _pairs(
    tests: Iterable[TestDiff], number: Callable[[SideFigures], float | None]
) -> Iterator[tuple[float, float]]:
    for test in tests:
        if not test.compared or test.before is None or test.after is None:
            continue
        before, after = number(test.before), number(test.after)
        if before is not None and after is not None:
            yield before, after
