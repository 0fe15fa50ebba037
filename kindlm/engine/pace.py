"""How fast one provider is called: as fast as it answers well, and no faster.

A state machine with an injected clock; nothing here talks to a provider. Its rules:

- *Slow start* (RFC 5681, 3.1, gentler): six calls may be in flight, and one more for every four
  good answers, up to the concurrency that was asked for. What the first refusal can hit is so
  never more than a quarter of what went well before, and six. Once a rate is known it is the rate
  that protects the provider, and one more may be in flight for every two good answers.
- *Halving, once per congestion epoch* (RFC 5681): a refusal halves what may be in flight. A refusal
  of a call that started before the last halving is news of the same congestion; it halves nothing
  again. Its `Retry-After` still counts.
- *Retry-After* (RFC 9110, 10.2.3): nothing starts before it is over. Without one, or when the
  first call after a pause is refused again, the pause is ours: a second, two, four; then until the
  minute is over that began with the first call, for then a limit per minute lets something
  through; then on doubling, up to a minute. One call alone tries whether it is over.
- *Rate*: a server that allows so many calls a minute is not held by a number in flight. The first
  refusal ends a cycle: the calls answered in it, over the time from its first call to the end of
  the pause, are the rate that the server grants. From then on calls are spaced evenly.
- *Cubic recovery* (after RFC 9438): the rate starts again from 0.8 of the limit, nears it quickly,
  stays around it, and then probes beyond it, slowly at first. It grows with good answers to calls
  that were held back, not with time: a pace that nobody uses is not known to be good. How many
  answers it takes is at first what came in the last cycle, so that wild first guesses are mended
  within seconds. Each refusal makes the way longer, in the end a minute, and so many answers for
  each call in flight as keep what a probe can cost within a few in a hundred.
- *The new limit* is what was measured, but one refusal does not take much off a known rate: a
  tenth where it was probed, three tenths where it was wrong because the rate had not reached it.
- *Quotas*: calls known to be left are not overdrawn; the last tenth is spread over the time until
  the limit is whole again. With none left nothing starts before that, or before the calls that
  used it up are a minute old one by one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kindlm.engine.recovery import Cycle, Recovery, Refusal
from kindlm.engine.remaining import Remaining
from kindlm.ports import Clock, Quota

__all__ = ["Pace", "PaceChange", "Turn"]

START_IN_FLIGHT = 6
GROWTH = 1 / 4
GROWTH_AT_A_RATE = 1 / 2
"""How many more calls may be in flight for each good answer."""

FIRST_PAUSE_S = 1.0
SHORT_PAUSES = 3
MINUTE_S = 60.0
"""After so many short pauses of our own, the next one ends with the minute: most limits are."""

LONGEST_PAUSE_S = 60.0
"""For pauses of our own and those for a quota; a provider's own `Retry-After` is taken as it is."""

FALL_IN_FLIGHT = 0.5
"""The part of the calls in flight that may go on to be."""

GROWTH_A_ROUND = 1.5
"""How much faster than the call that was just answered the next ones may come."""

SLACK_S = 0.02
"""How much of a late start the next ones may make up for: timers are late, bursts are not."""

TELLING = 1.5
"""By what factor the rate has grown when it is worth telling."""

TELLING_AGAIN_S = 60.0
"""How often it is worth telling that a quota is used up: small ones are all the time."""


@dataclass(frozen=True, slots=True)
class PaceChange:
    """The pace is another one now; `calls_per_minute` is None while only `in_flight` limits it.

    `pause_s` is how long nothing starts at all.
    """

    reason: Literal["refused", "quota", "recovered"]
    calls_per_minute: float | None
    in_flight: int
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """The right to make one call, which has begun with it.

    `waited_s` is what it took to get it, `in_flight` how many calls there were then, with this one.
    """

    number: int
    started_at: float
    waited_s: float
    in_flight: int
    rate: float | None
    """The rate of calls a second that it was held to, None if it came later than that."""


class Pace:
    """Decides when calls of one provider start; used from one event loop.

    Args:
        clock: measures and waits.
        changed: is told of changes that are worth an event.
        max_rpm: a fixed limit in calls a minute; the pace may still be lower.
        most: how many calls may ever be in flight.
    """

    def __init__(
        self,
        clock: Clock,
        changed: Callable[[PaceChange], None],
        *,
        max_rpm: float | None = None,
        most: int,
    ) -> None:
        self._clock = clock
        self._changed = changed
        self._max_rate = math.inf if max_rpm is None else max_rpm / 60
        self._most = most
        self._queue = asyncio.Lock()
        self._listeners: set[asyncio.Future[None]] = set()
        self._sent = 0
        self._in_flight = 0
        self._window: float = min(START_IN_FLIGHT, most)
        # The slot of the last start: starts are late, slots are even.
        self._slot = self._paused_until = -math.inf
        # Calls up to this number are of an epoch that was dealt with; and those in flight since.
        self._epoch = self._since_epoch = 0
        self._pauses = 0
        self._probing = False
        self._cycle: Cycle | None = None
        self._refusal: Refusal | None = None
        self._recovery: Recovery | None = None
        self._told_rate = math.inf
        self._quota_told_at = -math.inf
        self._remaining = Remaining()

    async def turn(self) -> Turn:
        """Wait until one more call may start, in order of arrival.

        Every turn must be given back by exactly one of `answered`, `refused` and `ended`.
        """
        arrived = self._clock.monotonic()
        try:
            async with self._queue:
                while (delay := self._delay()) > 0:
                    await self._news(delay)
                return self._start(arrived)
        finally:
            self._tell_listeners()

    @property
    def has_room(self) -> bool:
        """Whether `turn` would return at once."""
        return not self._queue.locked() and self._delay() <= 0

    async def room(self) -> None:
        """Return when there is room; nothing is reserved."""
        while not self.has_room:
            await self._news(math.inf if self._queue.locked() else self._delay())

    def answered(self, turn: Turn, quotas: Sequence[Quota] = ()) -> None:
        """Take note of a good answer."""
        self._heed(turn, quotas)
        if turn.number > self._epoch:
            self._let_through(turn)
        self._give_back(turn)

    def refused(
        self, turn: Turn, retry_after_s: float | None, quotas: Sequence[Quota] = ()
    ) -> None:
        """Take note that the provider has too much to do, or had too much of us (429, 503, 529)."""
        self._heed(turn, quotas)
        now = self._clock.monotonic()
        self._paused_until = max(self._paused_until, now + (retry_after_s or 0.0))
        if turn.number > self._epoch:
            self._halve(turn, now, retry_after_s)
        self._give_back(turn)

    def ended(self, turn: Turn) -> None:
        """Take note of a call that says nothing of the pace: it failed otherwise, or was cut."""
        # Whoever was to try whether a pause is over did not find out: the next call does.
        if self._cycle is not None and turn.number >= self._cycle.first:
            self._cycle.lost += 1
        self._give_back(turn)

    def _start(self, arrived: float) -> Turn:
        now = self._clock.monotonic()
        rate = self._rate
        slot = self._slot + 1 / rate
        held = rate < math.inf and now < slot + max(1 / rate, SLACK_S)
        # Only a timer may be late: who comes after a pause or later does not come for two.
        due = max(slot, self._paused_until)
        self._slot = due if now <= due + SLACK_S else now
        self._sent += 1
        self._remaining.started(now)
        self._in_flight += 1
        self._since_epoch += 1
        if self._cycle is None:
            self._cycle = Cycle(self._sent, now)
        waited_s = now - arrived
        return Turn(self._sent, now, waited_s, self._in_flight, rate if held else None)

    @property
    def _rate(self) -> float:
        """Calls a second."""
        return min(self._max_rate, math.inf if self._recovery is None else self._recovery.rate)

    def _delay(self) -> float:
        """Return for how many seconds no call may start; infinite if only an outcome helps."""
        if self._in_flight >= int(self._window) or (self._probing and self._since_epoch):
            return math.inf
        now = self._clock.monotonic()
        slot = self._slot + 1 / self._rate
        until = max(self._paused_until, slot, self._remaining.until(now))
        return until - now

    def _let_through(self, turn: Turn) -> None:
        """Count a good answer to a call of this epoch."""
        self._refusal = None
        self._probing = False
        self._pauses = 0
        recovery = self._recovery
        growth = GROWTH if recovery is None else GROWTH_AT_A_RATE
        self._window = min(self._most, self._window + growth)
        if recovery is not None and turn.rate is not None:
            if recovery.rate <= turn.rate * GROWTH_A_ROUND:
                recovery.good += 1
            if recovery.rate >= self._told_rate * TELLING:
                self._tell("recovered")

    def _halve(self, turn: Turn, now: float, retry_after_s: float | None) -> None:
        """Begin a new epoch: pause, and go on with half of what was too much."""
        again = self._refusal is not None
        if self._refusal is None:
            self._refusal = self._end_of_cycle(turn, now)
        if again or not retry_after_s:
            self._paused_until = max(self._paused_until, now + self._own_pause(now))
            self._pauses += 1
            # Where nothing is known, or the pause was too short, one call alone tries.
            self._probing = again or self._recovery is None
        self._recover()
        flight = max(turn.in_flight, self._in_flight)
        self._window = max(1.0, min(self._window, flight) * FALL_IN_FLIGHT)
        self._epoch, self._since_epoch = self._sent, 0
        self._cycle = None
        self._tell("refused", self._paused_until - now)

    def _own_pause(self, now: float) -> float:
        assert self._refusal is not None
        minute = self._refusal.began + MINUTE_S - now
        if self._pauses >= SHORT_PAUSES and minute > 0:
            return max(FIRST_PAUSE_S, minute)
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**self._pauses)

    def _end_of_cycle(self, turn: Turn, now: float) -> Refusal:
        cycle, known = self._cycle, self._recovery
        assert cycle is not None
        passed = max(0, turn.number - cycle.first - cycle.lost)
        seconds = turn.started_at - cycle.began
        flight = max(turn.in_flight, self._in_flight)
        refusal = Refusal(cycle.began, now, passed, seconds, flight, rate=None)
        if known is None:
            return refusal
        return replace(
            refusal,
            rate=turn.rate or self._rate,
            least_span_s=known.least_span_s,
            on_the_way=known.on_the_way,
        )

    def _recover(self) -> None:
        """Set out for the limit that the refusal has shown."""
        assert self._refusal is not None
        recovery = self._refusal.recovery(self._paused_until)
        if recovery is not None:
            self._recovery = recovery

    def _heed(self, turn: Turn, quotas: Sequence[Quota]) -> None:
        """Take in what the provider said of its limits when the call reached it."""
        for quota in quotas:
            if quota.reset_s is None:
                continue
            # The numbers are as old as the call may be: a limit that is whole by now says nothing.
            reset_at = turn.started_at + min(quota.reset_s, LONGEST_PAUSE_S)
            if quota.kind == "tokens":
                if quota.left == 0:
                    self._paused_until = max(self._paused_until, reset_at)
                    self._tell_quota(reset_at)
            else:
                self._remaining.heed(turn.number, turn.started_at, quota, reset_at)
                if quota.left == 0:
                    self._tell_quota(reset_at)

    def _tell_quota(self, until: float) -> None:
        now = self._clock.monotonic()
        if until - now >= FIRST_PAUSE_S and now >= self._quota_told_at + TELLING_AGAIN_S:
            self._quota_told_at = now
            self._tell("quota", until - now)

    def _tell(self, reason: Literal["refused", "quota", "recovered"], pause_s: float = 0.0) -> None:
        rate = self._rate
        self._told_rate = rate
        per_minute = None if rate == math.inf else rate * 60
        self._changed(PaceChange(reason, per_minute, int(self._window), pause_s))

    def _give_back(self, turn: Turn) -> None:
        self._in_flight -= 1
        if turn.number > self._epoch:
            self._since_epoch -= 1
        self._tell_listeners()

    def _tell_listeners(self) -> None:
        for listener in self._listeners:
            if not listener.done():
                listener.set_result(None)

    async def _news(self, delay: float) -> None:
        """Return when something has changed, or after so many seconds."""
        listener: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listeners.add(listener)
        try:
            if delay == math.inf:
                await listener
                return
            sleep = asyncio.ensure_future(self._clock.sleep(delay))
            try:
                await asyncio.wait({listener, sleep}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleep.cancel()
        finally:
            self._listeners.discard(listener)
