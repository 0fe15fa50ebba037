"""Pace the calls to one provider or agent: as fast as it accepts them, and no faster.

This is TCP-style congestion control for API calls: a state machine with an injected clock that
performs no I/O. A *refusal* is a response that says "too much" (429, 503, 529).

- *Window*: six calls may be in flight, and one more for every four good answers. After a refusal,
  it grows by one for every two good answers where a rate is known, and for every one where it is
  not. A refusal halves it. Refusals of calls that started before report the same congestion and
  halve nothing, but their `Retry-After` counts.
- *Single refusals*: some servers refuse a few calls at any rate. A 429 shows a limit only at the
  known limit, or as the second one within a few answers. An overload (503, 529) shows none.
- *Cooldown* (RFC 9110, `Retry-After`): nothing starts before it ends. If a provider at its limit
  names none, or refuses the first call after it, kindlm backs off: 1, 2, 4 seconds, then until a
  minute has passed since the first call (most limits are per minute), then up to 60 seconds. One
  call alone probes whether the cooldown was long enough.
- *Closing*: kindlm does not wait for a provider that asks for more than five minutes. Every waiter
  gets a turn at once and gives it back without a call.
- *Rate*: a limit per minute is not kept by limiting the window. The calls accepted until the end of
  the cooldown measure what the server grants; from then on calls are spaced evenly.
- *Cubic recovery* (after RFC 9438): the rate restarts at 0.8 of the limit, approaches it, plateaus,
  then probes beyond it. It grows with good answers to calls that the pace held back, not with time:
  an unused rate proves nothing. Every measurement makes the next climb longer, up to a minute.
- *Quotas*: calls that the provider reports as left are never overdrawn.

`calls.py` takes the turns of one execution at the paces of the run.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

from kindlm.bounds import MAX_RETRY_AFTER_S
from kindlm.dataclass import dataclass
from kindlm.engine.stop import Clock
from kindlm.events.execution_events import PaceReason, ProviderPaced
from kindlm.ports import Quota
from kindlm.suite import AgentTarget, ProviderSettings

START_WINDOW = 6
GROWTH_IN_SLOW_START, GROWTH_AT_A_RATE, GROWTH_AFTER_REFUSALS = 1 / 4, 1 / 2, 1.0
BACKOFF_FACTOR = 0.5

ENOUGH_REFUSALS, FORGOTTEN_AFTER = 2, 15
"""So many refusals show a limit. Each is forgotten after so many good answers."""

DROP = 0.2
"""The share of a limit by which the rate restarts below it."""

MEASURED_MARGIN = 1 / (1 - DROP / 4)
"""The limit that a climb leads back to, relative to the mean rate of the climb."""

MAX_DROP, MAX_DROP_BELOW_LIMIT = 0.1, 0.3
"""How much a measurement may take off a known rate: at the limit, and before reaching it."""

FIRST_CLIMB_S, LONGEST_CLIMB_S, CLIMB_GROWTH = 10.0, 60.0, 4
"""The least time of a climb back to the limit, and its growth with each measurement."""

LOWEST_RATE = 1 / 10
"""Calls per second; below that, only cooldowns and quotas slow the calls."""

SHORTEST_CYCLE_S = 0.02

FIRST_COOLDOWN_S, LONGEST_COOLDOWN_S = 1.0, 60.0
"""Limits of kindlm's own cooldowns and those for a quota; a provider may ask for more."""

SHORT_COOLDOWNS, MINUTE_S = 3, 60.0
"""After so many short cooldowns of kindlm's own, the next one ends with the minute."""

SLACK_S = 0.02
"""How much of a delayed start the next call may catch up with, since timers are late."""

MAX_GROWTH_PER_ROUND = 1.5
"""Answers to calls at a rate lower by this factor prove nothing about the current rate."""

NOTABLE_GROWTH = 1.5
"""Growth of the rate that is recorded."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Permission from a `pace` to start one call now.

    `rate` is the measured rate (calls per second) that delayed it, or None. A fixed limit is not
    recorded: it says nothing about the limit of the provider.
    """

    pace: Pace
    number: int
    started_at: float
    rate: float | None


@dataclass(slots=True)
class _Cycle:
    """The calls since the last measurement, from the one with the number `first` on.

    `lost` of them ended without a good answer. `rate` is the known rate of the refused call, and
    `least` what a measurement leaves of it.
    """

    first: int
    began: float
    lost: int = 0
    rate: float = math.inf
    least: float = 0.0


class Pace:
    """Decides when calls to one provider or agent (`callee`) start. Use it from one event loop.

    `changed` receives the changes worth an event. `max_rpm` is a fixed limit in calls per minute;
    the actual pace may be lower. `most` is the largest window.
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
        self._epoch = 0  # the last call that started before the current congestion
        self._refusals = 0.0  # the recent ones; good answers make kindlm forget them
        self._backoffs = 0
        self._probing = False  # one call alone probes whether the cooldown was long enough
        self.is_closed = False  # whether calls are forbidden from now on
        self._cycle: _Cycle | None = None
        # From a refusal, and from its measurement, until a call that started later is answered.
        self._is_congested = self._is_measured = False
        self._limit = math.inf  # as measured, in calls per second
        self._good = 0  # answers since the last measurement to calls that the rate delayed
        self._climb_s = FIRST_CLIMB_S / CLIMB_GROWTH
        self._quota: tuple[Turn, Quota, float] | None = None  # the last quota, and its reset time
        self._notified_rate = math.inf

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
        self._refusals = max(0.0, self._refusals - 1 / FORGOTTEN_AFTER)
        if turn.number > self._epoch:
            if self._is_measured:
                self._cycle = _Cycle(turn.number, turn.started_at)
            self._is_congested = self._is_measured = self._probing = False
            self._backoffs = 0
            growth = GROWTH_AT_A_RATE
            if self._limit == math.inf:
                growth = GROWTH_AFTER_REFUSALS if self._epoch else GROWTH_IN_SLOW_START
            self._window = min(self._most, self._window + growth)
            if turn.rate is not None and self._found_rate <= turn.rate * MAX_GROWTH_PER_ROUND:
                self._good += 1
                if self._rate >= self._notified_rate * NOTABLE_GROWTH:
                    self._notify("recovered")
        self._finish(turn)

    def refused(
        self,
        turn: Turn,
        retry_after_s: float | None,
        quotas: Sequence[Quota] = (),
        *,
        overloaded: bool = False,
    ) -> None:
        """Record that kindlm exceeded the provider's limit, or that the provider is overloaded."""
        if self.is_closed:
            self._finish(turn)
            return
        self._apply(quotas, turn)
        asked_s, before_s = retry_after_s or 0.0, self.cooldown_s
        self._cool_down(asked_s)
        self.is_closed = asked_s > MAX_RETRY_AFTER_S
        self._refusals += not overloaded
        is_new = turn.number > self._epoch  # it started after the last congestion was known
        again = is_new and self._is_congested  # and no call was answered since then
        is_notable = self.is_closed or (is_new and self._limit == math.inf)
        at_limit = self._climbed >= 1
        cycle = self._lose(turn)
        if is_new:
            self._window = max(1.0, self._window * BACKOFF_FACTOR)
            self._epoch = self._sent
            if not again:
                cycle.rate = turn.rate or self._found_rate
                drop = MAX_DROP if at_limit else MAX_DROP_BELOW_LIMIT
                cycle.least = cycle.rate * (1 - drop)
            self._is_congested = True
        shows_limit = (at_limit or self._refusals >= ENOUGH_REFUSALS) and not overloaded
        if again or (shows_limit and self._is_congested and not self._is_measured):
            if again or not asked_s:
                self._back_off(cycle, asked_s)
                self._probing = again or self._limit == math.inf
            if not overloaded:
                self._measure(turn, cycle)
            is_notable = True
        if is_notable or self.cooldown_s > before_s + LONGEST_COOLDOWN_S:
            self._notify("refused", self.cooldown_s)
        self._finish(turn)

    def _back_off(self, cycle: _Cycle, asked_s: float) -> None:
        """Cool down for 1, 2, 4 seconds, then until the minute has passed, then up to a minute.

        If the provider asked for a time itself, kindlm does not wait for the minute.
        """
        cooldown_s = min(LONGEST_COOLDOWN_S, FIRST_COOLDOWN_S * 2.0**self._backoffs)
        rest_of_minute = cycle.began + MINUTE_S - self._clock.monotonic()
        if self._backoffs >= SHORT_COOLDOWNS and rest_of_minute > 0 and not asked_s:
            cooldown_s = max(FIRST_COOLDOWN_S, rest_of_minute)
        self._cool_down(cooldown_s)
        self._backoffs += 1

    def ended(self, turn: Turn) -> None:
        """Record a call that failed for another reason, or was cancelled."""
        # If it was the probe after the cooldown, the next call is the probe.
        self._lose(turn)
        self._finish(turn)

    @property
    def cooldown_s(self) -> float:
        """The seconds until the current cooldown ends, or 0."""
        return max(0.0, self._cooldown_until - self._clock.monotonic())

    @property
    def pause_s(self) -> float:
        """The seconds until the cooldown has ended and the quota allows a call, or 0."""
        return max(0.0, self._paused_until - self._clock.monotonic())

    @property
    def _paused_until(self) -> float:
        if self._quota is not None:
            turn, quota, reset_at = self._quota
            if quota.left <= self._sent - turn.number:
                return max(self._cooldown_until, reset_at)
        return self._cooldown_until

    def _cool_down(self, seconds: float) -> None:
        self._cooldown_until = max(self._cooldown_until, self._clock.monotonic() + seconds)

    @property
    def _climbed(self) -> float:
        """The part of the climb that lies behind; the limit is reached at 1."""
        return self._good / (self._limit * self._climb_s)

    @property
    def _found_rate(self) -> float:
        """The current rate of the climb back to the measured limit and beyond."""
        return self._limit * (1 - DROP * (1 - self._climbed) ** 3)

    @property
    def _rate(self) -> float:
        if self._limit == math.inf:
            return self._max_rate
        return min(self._max_rate, self._found_rate)

    def _delay(self) -> float:
        """Return the seconds until a call may start; infinite if that depends on an outcome."""
        if self.is_closed:
            return 0.0
        is_probed = self._probing and any(number > self._epoch for number in self._in_flight)
        if is_probed or len(self._in_flight) >= int(self._window):
            return math.inf
        until = max(self._paused_until, self._last_slot + 1 / self._rate)
        return until - self._clock.monotonic()

    def _start(self) -> Turn:
        now, rate = self._clock.monotonic(), self._rate
        slot = self._last_slot + 1 / rate
        was_held = rate < math.inf and now < slot + max(1 / rate, SLACK_S)
        # Only a late timer is caught up with: after a cooldown or an idle time, slots start anew.
        due = max(slot, self._cooldown_until)
        self._last_slot = due if now <= due + SLACK_S else now
        self._sent += 1
        self._in_flight.add(self._sent)
        if self._cycle is None:
            self._cycle = _Cycle(self._sent, now)
        is_known = was_held and self._limit < math.inf
        return Turn(self, self._sent, now, rate if is_known else None)

    def _lose(self, turn: Turn) -> _Cycle:
        """Count a call without a good answer; return the current cycle."""
        cycle = self._cycle
        assert cycle is not None, "a call has started"
        cycle.lost += turn.number >= cycle.first
        return cycle

    def _measure(self, turn: Turn, cycle: _Cycle) -> None:
        """Set the rate by the calls that were accepted until the end of the cooldown.

        The cooldown counts as measured time: a window filled in a second admits nothing else.
        """
        self._is_measured = True
        self._epoch = self._sent
        self._refusals = 1.0
        passed = max(0, turn.number + 1 - cycle.first - cycle.lost)
        if not passed and cycle.rate == math.inf:
            return
        lasted = max(turn.started_at - cycle.began + self.cooldown_s, SHORTEST_CYCLE_S)
        limit = passed / lasted
        if cycle.rate < math.inf:
            limit = min(cycle.rate, max(cycle.least, limit * MEASURED_MARGIN))
        self._limit, self._good = max(LOWEST_RATE, limit), 0
        self._climb_s = min(LONGEST_CLIMB_S, max(CLIMB_GROWTH * self._climb_s, lasted))

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
                before_s = self.cooldown_s
                self._cool_down(reset_at - self._clock.monotonic())
                if self.cooldown_s >= before_s + FIRST_COOLDOWN_S:
                    self._notify("quota", self.cooldown_s)

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
