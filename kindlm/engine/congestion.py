"""What a refusal shows: the limit that it measures, and whether it is spurious.

`pace.py` says how these measurements limit the calls to a provider or agent.
"""

from __future__ import annotations

from kindlm.bounds import MAX_RETRY_AFTER_S
from kindlm.dataclass import dataclass

DROP = 0.2
"""The share of a limit by which the rate restarts below it."""

MEASURED_MARGIN = 1 / (1 - DROP / 4)
"""The limit that a recovery climbs back to, relative to the mean rate of the climb."""

MAX_DROP, MAX_DROP_BELOW_LIMIT = 0.1, 0.3
"""How much one refusal may take off a known rate: at the limit, and before reaching it.

A refusal before the limit shows that the limit was wrong."""

LARGE_DROPS = 3
"""After so many refusals below the limit in a row, each takes off no more than `MAX_DROP`: either
the limit is nearly found, or there is none and calls are refused at any rate."""

FIRST_CLIMB_S, LONGEST_CLIMB_S, CLIMB_GROWTH = 2.5, 60.0, 4
"""The least time of a climb back to the limit, and its growth with each refusal."""

ANSWERS_PER_PROBE = 40
"""Good answers, at the longest climb, for each call in flight that overshooting may cost."""

SHORTEST_CYCLE_S = 0.02

ENOUGH_GOOD, ENOUGH_BAD = 3, 2
"""Outcomes after a suspect refusal that show that it was spurious, or that it was not."""

FREE_SPURIOUS = 3
"""How many refusals may be spurious before a rate is measured; twice as many each time that no
limit was found where one had been measured."""

RAREST_TEST, RAREST_TEST_AFTER_UNDO = 4, 2
"""Where a limit is confirmed, only every second, then every fourth refusal below it is tested."""

SAME_RATE = 1.25
"""A limit is confirmed where no more than so many times its rate was accepted."""


@dataclass(slots=True)
class Climb:
    """The climb of the rate back to `limit` and beyond; `span` good answers reach the limit.

    `least_s` grows with each refusal, so that a well-known limit is not probed again and again.
    """

    limit: float
    span: float
    least_s: float
    good: int = 0

    @property
    def rate(self) -> float:
        """The current rate, in calls per second."""
        return self.limit * (1 - DROP * (1 - self.good / self.span) ** 3)


@dataclass(slots=True)
class Cycle:
    """The calls since the last cooldown: number and start of the `first`.

    `lost` of them ended without an answer.
    """

    first: int
    began: float
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Congestion:
    """The measurements of a cycle at the time `at` which a call was refused.

    `passed` calls were accepted in the `seconds` before the refused call started. `rate` is the
    rate that limited the call, if any, and `known` the climb in progress.
    """

    began: float
    at: float
    passed: int
    seconds: float
    in_flight: int
    rate: float | None
    known: Climb | None

    def climb(self, resume_at: float, refusals_below_limit: int) -> Climb | None:
        """Return the climb from `resume_at` on, or None if nothing was measured.

        The cooldown counts as measured time: a window filled in a second admits nothing else.
        """
        known, rate = self.known, self.rate
        lasted = max(self.seconds + resume_at - self.at, SHORTEST_CYCLE_S)
        limit = self.passed / lasted
        if rate is not None:
            limit *= MEASURED_MARGIN
            if known is not None and refusals_below_limit > LARGE_DROPS:
                limit = max(known.limit * (1 - MAX_DROP), min(rate, limit))
            else:
                drop = MAX_DROP if known and not refusals_below_limit else MAX_DROP_BELOW_LIMIT
                limit = min(rate, max(rate * (1 - drop), limit))
        if not limit:
            return None
        limit = max(limit, 1 / MAX_RETRY_AFTER_S)
        least_s = min(LONGEST_CLIMB_S, CLIMB_GROWTH * (known.least_s if known else FIRST_CLIMB_S))
        span = limit * min(LONGEST_CLIMB_S, max(least_s, lasted))
        if rate is not None:
            span = max(span, ANSWERS_PER_PROBE * self.in_flight * least_s / LONGEST_CLIMB_S)
        return Climb(limit, span, least_s)


@dataclass(slots=True)
class Suspect:
    """A refusal that may be spurious, and the outcomes of other calls since.

    Calls numbered above `first` count; those up to `last` were in flight when the refusal arrived.
    `known` is the climb that is suspended meanwhile. `asked` means that the provider named a
    cooldown: after it even a real limit has room again, so that later calls prove little.
    """

    congestion: Congestion
    first: int
    last: int
    asked: bool
    known: Climb | None
    good: int = 0
    bad: int = 0

    def is_spurious(self, *, pending: bool) -> bool | None:
        """Return the verdict, None while undecided; `pending` while calls up to `last` run."""
        if self.bad >= ENOUGH_BAD and (self.known is not None or self.bad >= self.good):
            return False
        if self.good >= ENOUGH_GOOD and self.good > self.bad:
            return True
        if self.asked and self.known is None and not pending:
            return self.good > 2 * self.bad
        return None


class SpuriousDetector:
    """Decides which refusals to test for being spurious, and learns from the verdicts.

    A limit that is reached refuses the next calls as well; an overload that hits one call in ten
    does not. While no rate is known, the first few refusals are tested. Once one is known, only
    refusals below the limit are tested: either the limit is wrong, or there is none.
    """

    def __init__(self) -> None:
        self._left = self._granted = FREE_SPURIOUS
        self._test_every = 1
        self._untested = 0
        self._last_spurious: Suspect | None = None
        self.good = 0
        self.refusals_below_limit = 0

    def should_test(self, known: Climb | None) -> bool:
        """Count the first refusal of an epoch, and return whether to test it."""
        if known is None:
            self._left -= 1
            return self._left >= 0
        if known.good >= known.span:
            self.refusals_below_limit = self._untested = 0
            return False
        self.refusals_below_limit += 1
        self._untested += 1
        return self._untested >= self._test_every

    def decided(self, suspect: Suspect, *, spurious: bool) -> None:
        """Learn from the verdict on a suspect refusal."""
        if suspect.known is None:
            return
        self._untested = 0
        if spurious:
            self._last_spurious, self.good = suspect, suspect.good
        else:
            self._test_every = min(RAREST_TEST, 2 * self._test_every)

    def undo(self, started_at: float) -> Climb | None:
        """Return the climb that the last verdict discarded, if this refusal refutes the verdict.

        It does if no more calls were accepted since than the rate allows: a limit that is only just
        exceeded refuses one call and accepts the next three.
        """
        suspect, self._last_spurious = self._last_spurious, None
        if suspect is None or suspect.known is None:
            return None
        seconds = started_at - suspect.congestion.began - suspect.congestion.seconds
        tolerance = SAME_RATE * FREE_SPURIOUS / self._granted
        if self.good <= 1 + tolerance * suspect.known.limit * seconds:
            self.refusals_below_limit += 1
            self._test_every = max(RAREST_TEST_AFTER_UNDO, self._test_every)
            return suspect.known
        self.refusals_below_limit = 0
        self._test_every = 1
        self._granted *= 2
        self._left = self._granted
        return None
