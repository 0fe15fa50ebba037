"""What rate a server grants, told by what it let through, and the way back to it.

Rates are calls a second. The curve is that of CUBIC (RFC 9438): fast while far below the last known
limit, flat around it, faster again the longer nothing is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FIRST_LEAST_SPAN_S", "Cycle", "Recovery", "Refusal"]

FALL = 0.2
"""The part of a limit that the rate falls below it."""

LEAST_SHARE = 0.9
LEAST_SHARE_ON_THE_WAY = 0.7
"""A known rate is not taken for less than this part of it because of one refusal.

The second is for one that came before the rate had reached the last known limit: that was wrong.
"""

LAST_STEPS = 3
"""After so many of the second in a row, each takes no more than a tenth off the last known limit:
either it is nearly found, or there is none, and calls are refused whatever the rate."""

MEASURED_MARGIN = 1 / (1 - FALL / 4)
"""The limit that a recovery comes back to, over the mean rate of the way there."""

FIRST_LEAST_SPAN_S = 2.5
LONGEST_SPAN_S = 60.0
"""In how much time the rate comes back to the last known limit; limits are mostly per minute."""

SPAN_GROWTH = 4
"""How much longer the least span is after each refusal."""

CALLS_FOR_A_PROBE = 40
"""Good answers, at the longest span, for each call in flight that going too far may cost."""

SHORTEST_CYCLE_S = 0.02


@dataclass(slots=True)
class Recovery:
    """The way back to a limit, and beyond; `good` answers drive it, not time.

    After `span` of them it is at the limit. `least_span_s` grows with each refusal: what is known
    well is not probed again and again.
    """

    limit: float
    span: float
    least_span_s: float
    good: int = 0

    @property
    def rate(self) -> float:
        """Calls a second that may start now."""
        return self.limit * (1 - FALL * (1 - self.good / self.span) ** 3)

    @property
    def on_the_way(self) -> bool:
        """Whether the rate is still below the limit."""
        return self.good < self.span


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
    """The end of a cycle that began at `began`; its first `passed` calls were let through.

    `seconds` lie between the start of the first of them and that of the call that was refused.
    The answer came at `at`, when `in_flight` calls were under way. `rate` is that of the refused
    call, known or asked for; None if calls were not spaced. `known` is the recovery before it.
    """

    began: float
    at: float
    passed: int
    seconds: float
    in_flight: int
    rate: float | None
    known: Recovery | None = None

    @property
    def refused_at(self) -> float:
        """When the call that was refused had started."""
        return self.began + self.seconds

    def recovery(self, resumed: float, in_a_row: int) -> Recovery | None:
        """Return the way back once calls start again; None if nothing is known of a limit.

        The pause counts: a window that was filled in a second lets nothing through for the rest.
        `in_a_row` is how many refusals there were since the rate was last at its limit.
        """
        lasted = max(self.seconds + resumed - self.at, SHORTEST_CYCLE_S)
        limit = self._limit(self.passed / lasted, in_a_row)
        if limit is None:
            return None
        last = FIRST_LEAST_SPAN_S if self.known is None else self.known.least_span_s
        least = min(LONGEST_SPAN_S, SPAN_GROWTH * last)
        span = limit * min(LONGEST_SPAN_S, max(least, lasted))
        if self.rate is not None:
            span = max(span, CALLS_FOR_A_PROBE * self.in_flight * least / LONGEST_SPAN_S)
        return Recovery(limit, span, least)

    def _limit(self, measured: float, in_a_row: int) -> float | None:
        if self.rate is None:
            return measured or None
        measured *= MEASURED_MARGIN
        if self.known is not None and in_a_row > LAST_STEPS:
            return max(self.known.limit * LEAST_SHARE, min(self.rate, measured))
        share = LEAST_SHARE if in_a_row == 0 and self.known else LEAST_SHARE_ON_THE_WAY
        return min(self.rate, max(self.rate * share, measured))
