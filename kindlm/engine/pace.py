"""Pace the calls to one provider or agent: as fast as it accepts them, and no faster.

This is TCP-style congestion control for API calls: a state machine with an injected clock that
performs no I/O. A *refusal* is a response that says "too much" (429, 503, 529).

- *Slow start* (RFC 5681, gentler): six calls may be in flight, and one more for every four good
  answers. After a refusal the window grows faster: by one for every two good answers where a rate
  is known, and for every one where all refusals were spurious.
- *Congestion epochs*: a refusal halves the window and starts an epoch. Refusals of calls that
  started before it report the same congestion and halve nothing, but their `Retry-After` counts.
- *Spurious refusals*: some servers refuse a few calls at any rate. The first refusal of an epoch
  has no further effect until the next outcomes show whether a limit was reached
  (`SpuriousDetector`). A provider that asks for a cooldown of over a minute is always believed.
- *Cooldown* (RFC 9110, `Retry-After`): nothing starts before it ends. If the provider names none,
  or refuses the first call after it, kindlm backs off: 1, 2, 4 seconds, then until a minute has
  passed since the first call (most limits are per minute), then up to 60 seconds. One call alone
  probes whether the cooldown was long enough.
- *Closing*: kindlm does not wait for a provider that asks for more than five minutes. Every waiter
  gets a turn at once and gives it back without a call.
- *Rate*: a limit per minute is not kept by limiting the window. The calls accepted between the
  first call and the end of the cooldown measure what the server grants; from then on calls are
  spaced evenly.
- *Cubic recovery* (after RFC 9438): the rate restarts at 0.8 of the limit, approaches it, plateaus,
  then probes beyond it. It grows with good answers to calls that the pace held back, not with time:
  an unused rate proves nothing. Every refusal makes the next climb longer, up to a minute.
- *Quotas*: calls that the provider reports as left are never overdrawn. The last tenth is spread
  over the time until the quota resets.

`calls.py` takes the turns of one execution at the paces of the run.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kindlm.bounds import MAX_RETRY_AFTER_S
from kindlm.dataclass import dataclass
from kindlm.engine.congestion import (
    ENOUGH_GOOD,
    Climb,
    Congestion,
    Cycle,
    SpuriousDetector,
    Suspect,
)
from kindlm.engine.stop import Clock
from kindlm.events.execution_events import PaceReason, ProviderPaced
from kindlm.ports import Quota
from kindlm.suite import AgentTarget, ProviderSettings

START_WINDOW = 6
GROWTH_IN_SLOW_START, GROWTH_AT_A_RATE, GROWTH_AFTER_SPURIOUS = 1 / 4, 1 / 2, 1.0
BACKOFF_FACTOR = 0.5

FIRST_COOLDOWN_S, LONGEST_COOLDOWN_S = 1.0, 60.0
"""Limits of kindlm's own cooldowns and those for a quota; a provider may ask for more."""

SHORT_COOLDOWNS = 3
MINUTE_S = 60.0
"""After so many short cooldowns of kindlm's own, the next one ends with the minute."""

SLACK_S = 0.02
"""How much of a delayed start the next call may catch up with, since timers are late."""

MAX_GROWTH_PER_ROUND = 1.5
"""Answers to calls at a rate lower by this factor prove nothing about the current rate."""

LAST_OF_QUOTA = 1 / 10
"""The share of a quota that is spread over the time until it resets."""

NOTABLE_GROWTH = 1.5
QUOTA_NOTICE_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Turn:
    """Permission from a `pace` to start one call now.

    `in_flight` includes this call. `rate` is the measured rate (calls per second) that delayed it,
    or None. A fixed limit is not recorded: it says nothing about the limit of the provider.
    """

    pace: Pace
    number: int
    started_at: float
    in_flight: int
    rate: float | None


class Pace:
    """Decides when calls to one provider or agent start. Use it from one event loop.

    Args:
        callee: its name, for the record.
        clock: measures time and sleeps.
        changed: receives the changes worth an event.
        max_rpm: a fixed limit in calls per minute; the actual pace may be lower.
        most: the largest window.
    """

    def __init__(
        self,
        callee: str,
        clock: Clock,
        changed: Callable[[ProviderPaced], None],
        *,
        max_rpm: float | None = None,
        most: int,
    ) -> None:
        self.callee = callee
        self._clock = clock
        self._changed = changed
        self._max_rate = math.inf if max_rpm is None else max_rpm / 60
        self._most = most
        self._queue = asyncio.Lock()
        self._in_line = 0  # tasks inside `turn`: a released lock looks free before the next wakes
        self._changes = asyncio.Event()  # replaced by a new one at each change
        self._sent = 0
        self._in_flight: set[int] = set()
        self._window: float = min(START_WINDOW, most)
        self._last_slot = self._cooldown_until = -math.inf  # slots are even; starts may be late
        self._epoch = 0  # the last call that started before the current congestion epoch
        self._backoffs = 0
        self._probing = False  # one call alone probes whether the cooldown was long enough
        self.is_closed = False  # whether calls are forbidden from now on
        self._cycle: Cycle | None = None
        self._congestion: Congestion | None = None
        self._climb: Climb | None = None
        self._detector = SpuriousDetector()
        self._suspect: Suspect | None = None
        self._starts: deque[float] = deque()  # of the calls in the last two minutes
        self._quota: tuple[Turn, Quota, float] | None = None  # the last quota, and its reset time
        self._notified_rate = math.inf
        self._quota_notified_at = -math.inf

    def set_max_rpm(self, max_rpm: float) -> None:
        """Change the fixed limit. What was learned about the provider stays."""
        self._max_rate = max_rpm / 60
        self._wake()

    async def turn(self) -> Turn:
        """Wait, first come, first served, until one more call may start.

        Report its outcome with exactly one of `answered`, `refused` and `ended`. Once the pace is
        closed, no call waits, and none may be made.
        """
        self._in_line += 1
        try:
            async with self._queue:
                while (delay := self._delay()) > 0:
                    await self._wait(delay)
                return self._start()
        finally:
            self._in_line -= 1
            self._wake()

    def turn_now(self) -> Turn | None:
        """Return a turn if there is room for one more call and none is waiting, else None."""
        if self._in_line or self._delay() > 0:
            return None
        return self._start()

    async def room(self) -> None:
        """Wait until there is room, without reserving it."""
        while (delay := math.inf if self._in_line else self._delay()) > 0:
            await self._wait(delay)

    def answered(self, turn: Turn, quotas: Sequence[Quota] = ()) -> None:
        """Record a good answer; in this epoch, it widens the window and raises the rate."""
        if quotas:
            self._apply(quotas, turn)
        self._detector.good += 1
        if self._suspect is not None and turn.number > self._suspect.first:
            self._suspect.good += 1
            self._decide(self._suspect, turn)
        elif turn.number > self._epoch:
            self._congestion = None
            self._probing = False
            self._backoffs = 0
            climb = self._climb
            if climb is not None:
                growth = GROWTH_AT_A_RATE
            else:
                growth = GROWTH_AFTER_SPURIOUS if self._epoch else GROWTH_IN_SLOW_START
            self._window = min(self._most, self._window + growth)
            if climb is not None and turn.rate is not None:
                climb.good += climb.rate <= turn.rate * MAX_GROWTH_PER_ROUND
                if climb.rate >= self._notified_rate * NOTABLE_GROWTH:
                    self._notify("recovered")
        self._finish(turn)

    def refused(
        self, turn: Turn, retry_after_s: float | None, quotas: Sequence[Quota] = ()
    ) -> None:
        """Record that the provider is overloaded, or that kindlm exceeded its limit."""
        self._apply(quotas, turn)
        now = self._clock.monotonic()
        asked_s = retry_after_s or 0.0
        before = max(self._cooldown_until, now)
        self._cooldown_until = max(self._cooldown_until, now + asked_s)
        closes = not self.is_closed and asked_s > MAX_RETRY_AFTER_S
        self.is_closed = self.is_closed or closes
        if self._suspect is not None:
            self._suspect.bad += turn.number > self._suspect.first
            self._decide(self._suspect, turn)
        elif turn.number > self._epoch:
            self._begin_epoch(turn, now, asked=bool(asked_s))
        elif closes or self._cooldown_until > before + LONGEST_COOLDOWN_S:
            self._notify("refused", self._cooldown_until - now)
        self._finish(turn)

    def ended(self, turn: Turn) -> None:
        """Record a call that failed for another reason, or was cancelled."""
        # If it was the probe after the cooldown, the next call is the probe.
        if self._cycle is not None and turn.number >= self._cycle.first:
            self._cycle.lost += 1
        self._finish(turn)

    @property
    def cooldown_s(self) -> float:
        """The seconds until the current cooldown ends, or 0."""
        return max(0.0, self._cooldown_until - self._clock.monotonic())

    @property
    def _rate(self) -> float:
        return min(self._max_rate, math.inf if self._climb is None else self._climb.rate)

    def _delay(self) -> float:
        """Return the seconds until a call may start; infinite if that depends on an outcome."""
        if self.is_closed:
            return 0.0
        suspect = self._suspect
        if suspect is not None or self._probing:
            in_epoch = sum(number > self._epoch for number in self._in_flight)
            if in_epoch >= (1 if self._probing else ENOUGH_GOOD):
                return math.inf
        # Calls that test a measured limit start at once, however narrow the window.
        is_testing = suspect is not None and suspect.known is not None
        if len(self._in_flight) >= (self._most if is_testing else int(self._window)):
            return math.inf
        now = self._clock.monotonic()
        slot = self._last_slot + 1 / self._rate
        until = max(self._cooldown_until, slot)
        if self._quota is not None and now < self._quota[2]:
            until = max(until, self._quota_blocks_until(now, *self._quota))
        return until - now

    def _quota_blocks_until(self, now: float, turn: Turn, quota: Quota, reset_at: float) -> float:
        """Return the time before which no call should start.

        It depends on the requests that the provider reported as left, less those started since.
        """
        limit, sent_since, at = quota.limit or 0, self._sent - turn.number, turn.started_at
        left = quota.left - sent_since
        if left > (limit * LAST_OF_QUOTA if limit else START_WINDOW):
            return -math.inf
        # A sliding window has room again once the oldest call that counts is a minute old. If other
        # clients share the quota, kindlm cannot know when that is.
        until = reset_at
        used = limit - quota.left + sent_since
        if limit and 0 < used <= len(self._starts):
            oldest, newest = self._starts[-used], self._starts[-1]
            if oldest > at - MINUTE_S:
                until = min(until, max(oldest + MINUTE_S, newest + MINUTE_S / limit))
        if left < 1:
            return until
        return min(until, self._starts[-1] + (reset_at - now) / left)

    def _start(self) -> Turn:
        now, rate = self._clock.monotonic(), self._rate
        slot = self._last_slot + 1 / rate
        was_held = rate < math.inf and now < slot + max(1 / rate, SLACK_S)
        # Only a late timer is caught up with: after a cooldown or an idle time, slots start anew.
        due = max(slot, self._cooldown_until)
        self._last_slot = due if now <= due + SLACK_S else now
        self._sent += 1
        self._starts.append(now)
        while self._starts[0] <= now - 2 * MINUTE_S:
            self._starts.popleft()
        self._in_flight.add(self._sent)
        if self._cycle is None:
            self._cycle = Cycle(self._sent, now)
        in_flight = len(self._in_flight)
        is_known = was_held and self._climb is not None
        return Turn(self, self._sent, now, in_flight, rate if is_known else None)

    def _begin_epoch(self, turn: Turn, now: float, *, asked: bool) -> None:
        """Halve the window; then test whether the refusal is spurious, or back off."""
        again = self._congestion is not None
        undone = None if self._climb else self._detector.undo(turn.started_at)
        known = self._climb = self._climb or undone
        flight = max(turn.in_flight, len(self._in_flight))
        congestion = self._congestion or self._measured(turn, now, flight)
        self._window = max(1.0, min(self._window, flight) * BACKOFF_FACTOR)
        self._epoch = self._sent
        if not (again or undone) and self._detector.should_test(known):
            first = turn.number if known is None else self._sent
            self._suspect = Suspect(congestion, first, self._sent, asked, known)
            self._climb = None
            self._decide(self._suspect, turn)
            return
        if again or not asked:
            self._back_off(congestion, now, asked=asked)
            self._probing = again or known is None
        self._recover(congestion)
        self._notify("refused", self._cooldown_until - now)

    def _measured(self, turn: Turn, now: float, in_flight: int) -> Congestion:
        """Return what the cycle that a refused call ends has measured."""
        cycle = self._cycle
        rate = turn.rate or (None if self._climb is None else self._rate)
        assert cycle is not None
        return Congestion(
            began=cycle.began,
            at=now,
            passed=max(0, turn.number - cycle.first - cycle.lost),
            seconds=turn.started_at - cycle.began,
            in_flight=in_flight,
            rate=rate,
            known=self._climb,
        )

    def _decide(self, suspect: Suspect, turn: Turn) -> None:
        """Act on a suspect refusal once the outcome of this turn decides it."""
        now = self._clock.monotonic()
        others = self._in_flight - {turn.number}
        pending = any(suspect.first < number <= suspect.last for number in others)
        spurious = suspect.is_spurious(pending=pending)
        if self._cooldown_until > now + LONGEST_COOLDOWN_S:
            spurious = False  # such a long cooldown would end before anything is decided
        if spurious is None:
            return
        self._suspect = None
        self._detector.decided(suspect, spurious=spurious)
        if not spurious:
            self._climb = suspect.known
            if suspect.known is not None or not suspect.asked:
                self._back_off(suspect.congestion, now, asked=suspect.asked)
                self._probing = True
            self._recover(suspect.congestion)
        self._notify("refused", max(0.0, self._cooldown_until - now))

    def _back_off(self, congestion: Congestion, now: float, *, asked: bool) -> None:
        """Start a cooldown of kindlm's own, longer each time."""
        cooldown_s = min(LONGEST_COOLDOWN_S, FIRST_COOLDOWN_S * 2.0**self._backoffs)
        rest_of_minute = congestion.began + MINUTE_S - now
        if self._backoffs >= SHORT_COOLDOWNS and rest_of_minute > 0 and not asked:
            cooldown_s = max(FIRST_COOLDOWN_S, rest_of_minute)
        self._cooldown_until = max(self._cooldown_until, now + cooldown_s)
        self._backoffs += 1

    def _recover(self, congestion: Congestion) -> None:
        """Start the climb to the measured limit, in a new epoch and cycle."""
        below = self._detector.refusals_below_limit
        self._congestion = congestion
        self._climb = congestion.climb(self._cooldown_until, below) or self._climb
        self._epoch = self._sent
        self._cycle = None

    def _apply(self, quotas: Sequence[Quota], turn: Turn) -> None:
        """Apply the quotas reported with an answer. They may be as old as the call."""
        for quota in quotas:
            if quota.reset_s is None:
                continue
            reset_at = turn.started_at + min(quota.reset_s, LONGEST_COOLDOWN_S)
            if quota.kind == "requests":
                if self._quota is None or turn.number >= self._quota[0].number:
                    self._quota = turn, quota, reset_at
            elif quota.left == 0:
                self._cooldown_until = max(self._cooldown_until, reset_at)
            now = self._clock.monotonic()
            # Small quotas are always used up quickly.
            is_due = now >= self._quota_notified_at + QUOTA_NOTICE_EVERY_S
            if quota.left == 0 and is_due and reset_at - now >= FIRST_COOLDOWN_S:
                self._quota_notified_at = now
                self._notify("quota", reset_at - now)

    def _finish(self, turn: Turn) -> None:
        self._in_flight.discard(turn.number)
        self._wake()

    def _notify(self, reason: PaceReason, pause_s: float = 0.0) -> None:
        rate = self._notified_rate = self._rate
        self._changed(
            ProviderPaced(
                callee=self.callee,
                reason=reason,
                calls_per_minute=None if rate == math.inf else round(rate * 60, 1),
                in_flight=int(self._window),
                pause_s=round(pause_s, 3),
            )
        )

    def _wake(self) -> None:
        self._changes.set()
        self._changes = asyncio.Event()

    async def _wait(self, seconds: float) -> None:
        """Wait for the next `_wake`, at most `seconds`."""
        waiting: set[asyncio.Future[Any]] = {asyncio.ensure_future(self._changes.wait())}
        if seconds < math.inf:
            waiting.add(asyncio.ensure_future(self._clock.sleep(seconds)))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()


Callee = ProviderSettings | AgentTarget
"""A provider or agent that may refuse calls."""
