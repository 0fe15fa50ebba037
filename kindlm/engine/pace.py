"""How fast one provider is called: as fast as it answers well, and no faster.

A state machine with an injected clock; nothing here talks to a provider. Its rules:

- *Slow start* (RFC 5681, 3.1, gentler): six calls may be in flight, and one more for every four
  good answers, up to the concurrency that was asked for. What the first refusal can hit is so
  never more than a quarter of what went well before, and six. Once something was refused, another
  rule protects the provider: one more may be in flight for every two good answers where a rate is
  known, and for every one where refusals came alone.
- *Halving, once per congestion epoch* (RFC 5681): a refusal halves what may be in flight. A refusal
  of a call that started before the last halving is news of the same congestion; it halves nothing
  again. Its `Retry-After` still counts.
- *Doubt* (`doubt.py`): the first refusal of an epoch does nothing more than that until the next
  outcomes show whether a limit is reached. One that came alone neither makes a pause nor a rate. A
  rate that was given up for one holds again if no more was let through until the next refusal.
  Who asks for a pause of more than a minute is not doubted.
- *Retry-After* (RFC 9110, 10.2.3): nothing starts before it is over. Without one, or when the
  first call after a pause is refused again, the pause is ours: a second, two, four; then, unless a
  time was named, until the minute is over that began with the first call, for then a limit per
  minute lets something through; then on doubling, up to a minute. One call alone tries whether it
  is over.
- *Closing*: a provider that asks for more than five minutes is not waited for: everybody gets a
  turn at once, and is to give it back without a call.
- *Rate*: a server that allows so many calls a minute is not held by a number in flight. The first
  refusal ends a cycle: the calls answered in it, over the time from its first call to the end of
  the pause, are the rate that the server grants. From then on calls are spaced evenly. Calls that
  `max_rpm` had spaced tell less: they are taken as those of a rate that was known.
- *Cubic recovery* (after RFC 9438): the rate starts again from 0.8 of the limit, nears it quickly,
  stays around it, and then probes beyond it, slowly at first. It grows with good answers to calls
  that were held back, not with time: a pace that nobody uses is not known to be good. How many
  answers it takes is at first what came in the last cycle, so that wild first guesses are mended
  within seconds. Each refusal makes the way longer, in the end a minute, and so many answers for
  each call in flight as keep what a probe can cost within a few in a hundred.
- *The new limit* is what was measured, but one refusal does not take much off a known rate: a
  tenth where it was probed, three tenths where it was wrong because the rate had not reached it,
  and from the fourth such refusal in a row on a tenth.
- *Quotas*: calls known to be left are not overdrawn; the last tenth is spread over the time until
  the limit is whole again. With none left nothing starts before that, or before the calls that
  used it up are a minute old one by one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from kindlm.engine.doubt import ENOUGH, Doubt, Doubts
from kindlm.engine.news import News
from kindlm.engine.recovery import Cycle, Recovery, Refusal
from kindlm.engine.remaining import Remaining
from kindlm.ports import Clock, Quota

__all__ = ["MAX_RETRY_AFTER_S", "Pace", "PaceChange", "Turn"]

START_IN_FLIGHT = 6
GROWTH = 1 / 4
GROWTH_AT_A_RATE = 1 / 2
GROWTH_AGAIN = 1.0
"""How many more calls may be in flight for each good answer; the last after a refusal was alone."""

FIRST_PAUSE_S = 1.0
SHORT_PAUSES = 3
MINUTE_S = 60.0
"""After so many short pauses of our own, the next one ends with the minute: most limits are."""

LONGEST_PAUSE_S = 60.0
"""For pauses of our own and those for a quota; a provider's own `Retry-After` is taken as it is."""

FALL_IN_FLIGHT = 0.5
"""The part of the calls in flight that may go on to be."""

MAX_RETRY_AFTER_S = 300.0
"""The longest wait that a provider may ask for; who asks for more is not called any more."""

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
        self._news = News(clock)
        self._sent = 0
        self._under_way: set[int] = set()
        self._window: float = min(START_IN_FLIGHT, most)
        # The slot of the last start: starts are late, slots are even.
        self._slot = self._paused_until = -math.inf
        # Calls up to this number are of an epoch that was dealt with; and those in flight since.
        self._epoch = self._since_epoch = 0
        self._pauses = 0
        self._is_closed = False
        self._probing = False
        self._cycle: Cycle | None = None
        self._refusal: Refusal | None = None
        self._recovery: Recovery | None = None
        self._doubts = Doubts()
        self._doubt: Doubt | None = None
        self._told_rate = math.inf
        self._quota_told_at = -math.inf
        self._remaining = Remaining()

    async def turn(self) -> Turn:
        """Wait until one more call may start, in order of arrival.

        Every turn must be given back by exactly one of `answered`, `refused` and `ended`. Once the
        pace is closed, nobody waits, and no call may be made.
        """
        arrived = self._clock.monotonic()
        try:
            async with self._queue:
                while (delay := self._delay()) > 0:
                    await self._news.wait(delay)
                return self._start(arrived)
        finally:
            self._news.tell()

    @property
    def is_closed(self) -> bool:
        """Whether no call may be made any more."""
        return self._is_closed

    @property
    def has_room(self) -> bool:
        """Whether `turn` would return at once."""
        return not self._queue.locked() and self._delay() <= 0

    async def room(self) -> None:
        """Return when there is room; nothing is reserved."""
        while not self.has_room:
            await self._news.wait(math.inf if self._queue.locked() else self._delay())

    def answered(self, turn: Turn, quotas: Sequence[Quota] = ()) -> None:
        """Take note of a good answer."""
        self._heed(turn, quotas)
        self._doubts.answered()
        if self._doubt is not None and turn.number > self._doubt.first:
            self._doubt.good += 1
            self._settle(self._doubt, turn)
        elif turn.number > self._epoch:
            self._let_through(turn)
        self._give_back(turn)

    def refused(
        self, turn: Turn, retry_after_s: float | None, quotas: Sequence[Quota] = ()
    ) -> None:
        """Take note that the provider has too much to do, or had too much of us (429, 503, 529)."""
        self._heed(turn, quotas)
        now = self._clock.monotonic()
        paused_until = max(self._paused_until, now)
        self._paused_until = max(self._paused_until, now + (retry_after_s or 0.0))
        closes = not self._is_closed and (retry_after_s or 0.0) > MAX_RETRY_AFTER_S
        self._is_closed = self._is_closed or closes
        if self._doubt is not None:
            self._doubt.bad += turn.number > self._doubt.first
            self._settle(self._doubt, turn)
        elif turn.number > self._epoch:
            self._congested(turn, now, retry_after_s)
        elif closes or self._paused_until > paused_until + LONGEST_PAUSE_S:
            self._tell("refused", self._paused_until - now)
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
        self._under_way.add(self._sent)
        self._since_epoch += 1
        if self._cycle is None:
            self._cycle = Cycle(self._sent, now)
        waited_s = now - arrived
        return Turn(self._sent, now, waited_s, len(self._under_way), rate if held else None)

    @property
    def _rate(self) -> float:
        """Calls a second."""
        return min(self._max_rate, math.inf if self._recovery is None else self._recovery.rate)

    def _delay(self) -> float:
        """Return for how many seconds no call may start; infinite if only an outcome helps."""
        if self._is_closed:
            return 0.0
        if not self._has_place:
            return math.inf
        now = self._clock.monotonic()
        slot = self._slot + 1 / self._rate
        until = max(self._paused_until, slot, self._remaining.until(now))
        return until - now

    @property
    def _has_place(self) -> bool:
        doubt = self._doubt
        if doubt is not None and self._since_epoch >= ENOUGH:
            return False
        # Those that show whether a measured limit is one come at once, however few it allowed.
        most = int(self._window) if doubt is None or doubt.known is None else self._most
        return len(self._under_way) < most and not (self._probing and self._since_epoch)

    def _let_through(self, turn: Turn) -> None:
        """Count a good answer to a call of this epoch."""
        self._refusal = None
        self._probing = False
        self._pauses = 0
        recovery = self._recovery
        growth = GROWTH_AT_A_RATE
        if recovery is None:
            growth = GROWTH_AGAIN if self._doubts.any_refusal else GROWTH
        self._window = min(self._most, self._window + growth)
        if recovery is not None and turn.rate is not None:
            if recovery.rate <= turn.rate * GROWTH_A_ROUND:
                recovery.good += 1
            if recovery.rate >= self._told_rate * TELLING:
                self._tell("recovered")

    def _congested(self, turn: Turn, now: float, retry_after_s: float | None) -> None:
        """Begin a new epoch with half of what was too much; pause unless that is doubted."""
        again = self._refusal is not None
        belied = None if self._recovery else self._doubts.belied(turn.started_at)
        self._recovery = self._recovery or belied
        refusal = self._refusal or self._end_of_cycle(turn, now)
        if not (again or belied) and self._doubts.doubts(known := self._recovery):
            first = turn.number if known is None else self._sent
            self._doubt = Doubt(refusal, first, self._sent, bool(retry_after_s), known)
            self._recovery = None
            self._halve(turn)
            self._settle(self._doubt, turn)
            return
        self._refusal = refusal
        if again or not retry_after_s:
            self._pause(now, asked=bool(retry_after_s))
            # Where nothing is known, or the pause was too short, one call alone tries.
            self._probing = again or self._recovery is None
        self._recover()
        self._halve(turn)
        self._cycle = None
        self._tell("refused", self._paused_until - now)

    def _settle(self, doubt: Doubt, turn: Turn) -> None:
        """Go on as it turned out, if it did with the outcome of this turn."""
        waits = any(doubt.first < n <= doubt.last for n in self._under_way if n != turn.number)
        now = self._clock.monotonic()
        # Until so long a pause is over, nothing else would tell; and who names one means it.
        is_meant = self._paused_until > now + LONGEST_PAUSE_S
        verdict = "limit" if is_meant else doubt.verdict(waits=waits)
        if verdict is None:
            return
        self._doubt = None
        self._doubts.settled(doubt, alone=verdict == "alone")
        if verdict == "limit":
            self._refusal, self._recovery = doubt.refusal, doubt.known
            if doubt.known is not None or not doubt.asked:
                self._pause(now, asked=doubt.asked)
                self._probing = True
            self._recover()
            self._epoch, self._since_epoch = self._sent, 0
            self._cycle = None
        self._tell("refused", max(0.0, self._paused_until - now))

    def _halve(self, turn: Turn) -> None:
        flight = max(turn.in_flight, len(self._under_way))
        self._window = max(1.0, min(self._window, flight) * FALL_IN_FLIGHT)
        self._epoch, self._since_epoch = self._sent, 0

    def _pause(self, now: float, *, asked: bool) -> None:
        """Make a pause of our own, longer than the last one if that was too short."""
        assert self._refusal is not None
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**self._pauses)
        minute = self._refusal.began + MINUTE_S - now
        if self._pauses >= SHORT_PAUSES and minute > 0 and not asked:
            pause_s = max(FIRST_PAUSE_S, minute)
        self._paused_until = max(self._paused_until, now + pause_s)
        self._pauses += 1

    def _end_of_cycle(self, turn: Turn, now: float) -> Refusal:
        cycle, known = self._cycle, self._recovery
        assert cycle is not None
        passed = max(0, turn.number - cycle.first - cycle.lost)
        seconds = turn.started_at - cycle.began
        flight = max(turn.in_flight, len(self._under_way))
        rate = turn.rate or self._rate
        known_rate = None if rate == math.inf else rate
        return Refusal(cycle.began, now, passed, seconds, flight, known_rate, known)

    def _recover(self) -> None:
        """Set out for the limit that the refusal has shown."""
        assert self._refusal is not None
        recovery = self._refusal.recovery(self._paused_until, self._doubts.in_a_row)
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
        self._under_way.discard(turn.number)
        if turn.number > self._epoch:
            self._since_epoch -= 1
        self._news.tell()
