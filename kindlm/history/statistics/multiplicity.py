"""Many tests are compared at once: which of them to believe."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from kindlm.history.statistics.tables import DiscreteP

__all__ = ["discrete_discoveries"]


def discrete_discoveries(tests: Sequence[DiscreteP], level: float) -> list[bool]:
    """Tell which tests stand out, knowing which p-values each of them could have had at all.

    The step-up of Y. Benjamini and Y. Hochberg ("Controlling the false discovery rate", JRSS B 57
    (1995), 289-300) counts each of m tests with p(k). With few repeats most tests can't get there,
    whatever happens, and counting them in costs all power. Here test i counts with F_i(t), its
    largest attainable p-value up to t, and those that can have but one p-value don't count:

        reject the k smallest p, for the largest k with p(k) <= T and
        sum of F_i(p(k)) / (1 - F_i(T)) <= level k;
        T is the largest t with sum of F_i(t) / (1 - F_i(t)) <= level m

    The procedure HSU of S. Döhler, G. Durand, E. Roquain, "New FDR bounds for discrete and
    heterogeneous tests", Electronic Journal of Statistics 12 (2018), 1867-1900, proven for
    independent tests. If nothing changed at all, any discovery is false, and the rate is the
    probability of one.
    """
    supports = Counter(test.attainable for test in tests if len(test.attainable) > 1)
    ceiling = _ceiling(supports, level * supports.total())
    if ceiling is None:
        return [False] * len(tests)
    weights = {s: count / (1 - _reached(s, ceiling)) for s, count in supports.items()}
    ordered = sorted(test.value for test in tests)
    bound = -1.0
    for k, p in enumerate(ordered, start=1):
        if p > ceiling:
            break
        expected = sum(weight * _reached(s, p) for s, weight in weights.items())
        if expected <= level * k:
            bound = p
    return [test.value <= bound for test in tests]


def _ceiling(supports: Counter[tuple[float, ...]], most: float) -> float | None:
    """Return the largest attainable t whose weighted sum of F is at most `most`; None if none."""
    thresholds = sorted({p for support in supports for p in support if p < 1})

    def total(t: float) -> float:
        reached = ((_reached(s, t), count) for s, count in supports.items())
        return sum(count * f / (1 - f) if f < 1 else float("inf") for f, count in reached)

    found = bisect_right(thresholds, most, key=total)
    return thresholds[found - 1] if found else None


def _reached(support: tuple[float, ...], threshold: float) -> float:
    """Return the largest attainable p-value up to the threshold, 0 if there is none."""
    found = bisect_right(support, threshold)
    return support[found - 1] if found else 0.0
