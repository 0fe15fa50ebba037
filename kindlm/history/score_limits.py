"""What the weighted scores of the repeats of a test have to keep to, together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, stdev

from kindlm.suite import ScoreLimits

__all__ = ["LimitedScores"]

_TOLERANCE = 1e-9
"""A mean may miss a limit that its scores meet by rounding alone."""

_SPREAD = 2
"""Fewer scores have no spread."""


@dataclass(frozen=True, slots=True)
class LimitedScores:
    """The weighted scores of a test that ended with one, 0 to 1, and the limits they have."""

    limits: ScoreLimits
    scores: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        """Their mean; None where nothing was scored."""
        return fmean(self.scores) if self.scores else None

    @property
    def std_dev(self) -> float | None:
        """Their standard deviation as that of a sample; None for fewer than two."""
        return stdev(self.scores) if len(self.scores) >= _SPREAD else None

    @property
    def broken(self) -> tuple[str, ...]:
        """What they do not keep to, in words and points of 100; empty if they keep to all of it."""
        return tuple(self._broken())

    def _broken(self) -> Iterator[str]:
        if self.mean is None:
            yield "No repeat has a weighted score, and the scores of this test have limits"
            return
        low, high = self.limits.min_mean, self.limits.max_std_dev
        if low is not None and self.mean < low - _TOLERANCE:
            yield f"The mean weighted score is {_points(self.mean)}, and {_points(low)} is needed"
        # One score says nothing of the spread, for or against.
        if high is not None and self.std_dev is not None and self.std_dev > high + _TOLERANCE:
            yield (
                f"The standard deviation of the weighted scores is {_points(self.std_dev)}, and "
                f"{_points(high)} is the most"
            )


def _points(score: float) -> str:
    """Return a score, or a difference of two, in points of 100."""
    return f"{score * 100:.2f}".rstrip("0").rstrip(".")
