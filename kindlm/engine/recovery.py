"""What rate a server grants, told by what it let through, and the way back to it.

Rates are calls a second. The curve is that of CUBIC (RFC 9438): fast while far below the last known
limit, flat around it, faster again the longer nothing is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FIRST_LEAST_SPAN_S", "Cycle", "Recovery", "Refusal"]

FALL = 0.3
"""The part of a limit that the rate falls below it (RFC 9438, 4.6)."""

LEAST_SHARE = 1 - FALL
"""A known rate is not taken for less than this part of it because of one refusal."""

MEASURED_MARGIN = 1 / (1 - FALL / 4)
"""The limit that a recovery comes back to, over the mean rate of the way there."""

FIRST_LEAST_SPAN_S = 2.5
LONGEST_SPAN_S = 60.0
"""In how much time the rate comes back to the last known limit; limits are mostly per minute."""

SHORTEST_CYCLE_S = 0.02


@dataclass(slots=True)
class Recovery:
    """The way back to a limit, and beyond; `good` answers drive it, not time.

    `least_span_s` doubles with each refusal: what is known well is not probed again and again.
    """

    limit: float
    span_s: float
    least_span_s: float
    good: int = 0

    @property
    def rate(self) -> float:
        """Calls a second that may start now."""
        x = self.good / (self.limit * self.span_s)
        return self.limit * (1 - FALL * (1 - x) ** 3)


@dataclass(slots=True)
class Cycle:
    """The calls from the first after a pause to the first that is refused.

    `first` is the number of the call it began with, `lost` how many ended without an answer.
    """

    first: int
    began: float
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """The end of a cycle: how many calls were let through, in how many seconds before `at`.

    `rate` is that of the call that was refused; None if calls were not spaced. `least_span_s` is
    that of the recovery before it.
    """

    at: float
    passed: int
    seconds: float
    rate: float | None
    least_span_s: float

    def recovery(self, resumed: float) -> Recovery | None:
        """Return the way back once calls start again; None if nothing is known of a limit.

        The pause counts: a window that was filled in a second lets nothing through for the rest.
        """
        lasted = max(self.seconds + resumed - self.at, SHORTEST_CYCLE_S)
        limit = self._limit(self.passed / lasted)
        if limit is None:
            return None
        least = min(LONGEST_SPAN_S, 2 * self.least_span_s)
        return Recovery(limit, min(LONGEST_SPAN_S, max(least, lasted)), least)

    def _limit(self, measured: float) -> float | None:
        if self.rate is None:
            return measured or None
        return min(self.rate, max(self.rate * LEAST_SHARE, measured * MEASURED_MARGIN))
