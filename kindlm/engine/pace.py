"""Pace the calls to one provider or agent: as fast as it accepts them, and no faster.

This is TCP-style congestion control for API calls: a state machine with an injected clock that
performs no I/O. A *refusal* is a response that says "too much" (429, 503, 529).

- *Slow start* (RFC 5681, gentler): six calls may be in flight, and one more for every four good
  answers. After a refusal the window grows faster: by one for every two good answers where a rate
  is known, and for every one where it is not.
- *Congestion epochs*: a refusal halves the window and starts an epoch. Refusals of calls that
  started before it report the same congestion and halve nothing, but their `Retry-After` counts.
- *Single refusals*: some servers refuse a few calls at any rate. A refusal has no further effect
  unless it comes at the known limit, or so soon after another that a limit must be the reason. An
  overload (503, 529) shows no limit: if the next answer is a refusal, too, kindlm only backs off.
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
  an unused rate proves nothing. Every measurement makes the next climb longer, up to a minute.
- *Quotas*: calls that the provider reports as left are never overdrawn. The last tenth is spread
  over the time until the quota resets.

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
"""The limit that a recovery climbs back to, relative to the mean rate of the climb."""

MAX_DROP, MAX_DROP_BELOW_LIMIT = 0.1, 0.3
"""How much a measurement may take off a known rate: at the limit, and before reaching it.

A refusal before the limit shows that the limit was wrong."""

LOWEST_LIMIT = 1 / 10
"""Calls per second; below that, only cooldowns and quotas slow the calls."""

FIRST_CLIMB_S, LONGEST_CLIMB_S, CLIMB_GROWTH = 10.0, 60.0, 4
"""The least time of a climb back to the limit, and its growth with each measurement."""

SHORTEST_CYCLE_S = 0.02

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


@dataclass(slots=True)
class _Climb:
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

    @property
    def is_over(self) -> bool:
        """Whether the limit is reached."""
        return self.good >= self.span


@dataclass(slots=True)
class _Cycle:
    """The calls since the last cooldown, from the one with the number `first` on.

    `lost` of them ended without an answer. The first call that is refused ends the cycle and
    measures it: `passed` calls were accepted in `seconds`, at the `rate` that limited them, if any,
    during the climb `known`. While `is_single`, nothing but this refusal shows a limit.
    """

    first: int
    began: float
    lost: int = 0
    passed: int = 0
    seconds: float = 0.0
    rate: float | None = None
    known: _Climb | None = None
    is_single: bool = True

    def climb(self, cooldown_s: float) -> _Climb | None:
        """Return the climb after a cooldown, or None if nothing was measured.

        The cooldown counts as measured time: a window filled in a second admits nothing else.
        """
        known, rate = self.known, self.rate
        if not self.passed and rate is None:
            return None
        lasted = max(self.seconds + cooldown_s, SHORTEST_CYCLE_S)
        limit = self.passed / lasted
        if rate is not None:
            drop = MAX_DROP if known is not None and known.is_over else MAX_DROP_BELOW_LIMIT
            limit = min(rate, max(rate * (1 - drop), limit * MEASURED_MARGIN))
        limit = max(limit, LOWEST_LIMIT)
        least_s = min(LONGEST_CLIMB_S, CLIMB_GROWTH * known.least_s) if known else FIRST_CLIMB_S
        return _Climb(limit, limit * min(LONGEST_CLIMB_S, max(least_s, lasted)), least_s)


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
        self._refusals = 0.0  # the recent ones; good answers make kindlm forget them
        self._backoffs = 0
        self._probing = False  # one call alone probes whether the cooldown was long enough
        self.is_closed = False  # whether calls are forbidden from now on
        self._cycle: _Cycle | None = None
        self._congestion: _Cycle | None = None  # until a call of its epoch is answered
        self._climb: _Climb | None = None
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
        self._refusals = max(0.0, self._refusals - 1 / FORGOTTEN_AFTER)
        if turn.number > self._epoch:
            self._congestion = None
            self._probing = False
            self._backoffs = 0
            climb = self._climb
            if climb is not None:
                growth = GROWTH_AT_A_RATE
            else:
                growth = GROWTH_AFTER_REFUSALS if self._epoch else GROWTH_IN_SLOW_START
            self._window = min(self._most, self._window + growth)
            if climb is not None and turn.rate is not None:
                if climb.rate <= turn.rate * MAX_GROWTH_PER_ROUND:
                    climb.good += 1
                if climb.rate >= self._notified_rate * NOTABLE_GROWTH:
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
        asked_s = retry_after_s or 0.0
        before_s = self.cooldown_s
        self._cool_down(asked_s)
        self.is_closed = asked_s > MAX_RETRY_AFTER_S
        self._refusals += not overloaded
        is_new, known, congestion = turn.number > self._epoch, self._climb, self._congestion
        again = is_new and congestion is not None
        if is_new:
            flight = max(turn.in_flight, len(self._in_flight))
            self._window = max(1.0, min(self._window, flight) * BACKOFF_FACTOR)
            self._epoch = self._sent
            self._congestion = congestion = congestion or self._measured(turn)
        is_limit = self._refusals >= ENOUGH_REFUSALS or (known is not None and known.is_over)
        is_limit = is_limit and not overloaded
        is_notable = self.is_closed or (is_new and known is None)
        if congestion is not None and (again or (congestion.is_single and is_limit)):
            if again or not asked_s:
                self._back_off(congestion, again=again, asked=asked_s > 0)
            if not overloaded:
                self._recover(congestion)
            is_notable = True
        if is_notable or self.cooldown_s > before_s + LONGEST_COOLDOWN_S:
            self._notify("refused", self.cooldown_s)
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

    def _cool_down(self, seconds: float) -> None:
        self._cooldown_until = max(self._cooldown_until, self._clock.monotonic() + seconds)

    @property
    def _rate(self) -> float:
        return min(self._max_rate, math.inf if self._climb is None else self._climb.rate)

    def _delay(self) -> float:
        """Return the seconds until a call may start; infinite if that depends on an outcome."""
        if self.is_closed:
            return 0.0
        is_probed = self._probing and any(number > self._epoch for number in self._in_flight)
        if is_probed or len(self._in_flight) >= int(self._window):
            return math.inf
        now = self._clock.monotonic()
        until = max(self._cooldown_until, self._last_slot + 1 / self._rate)
        if self._quota is not None and now < self._quota[2]:
            until = max(until, self._quota_blocks_until(now, *self._quota))
        return until - now

    def _quota_blocks_until(self, now: float, turn: Turn, quota: Quota, reset_at: float) -> float:
        """Return the time before which no call should start.

        It depends on the requests that the provider reported as left, less those started since.
        """
        left = quota.left - (self._sent - turn.number)
        if left > (quota.limit * LAST_OF_QUOTA if quota.limit else START_WINDOW):
            return -math.inf
        return reset_at if left < 1 else self._last_slot + (reset_at - now) / left

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
        is_known = was_held and self._climb is not None
        return Turn(self, self._sent, now, len(self._in_flight), rate if is_known else None)

    def _measured(self, turn: Turn) -> _Cycle:
        """Return the cycle that a refused call ends, with what it measured."""
        cycle = self._cycle
        assert cycle is not None
        cycle.passed = max(0, turn.number - cycle.first - cycle.lost)
        cycle.seconds = turn.started_at - cycle.began
        cycle.rate = turn.rate or (None if self._climb is None else self._rate)
        cycle.known = self._climb
        return cycle

    def _back_off(self, congestion: _Cycle, *, again: bool, asked: bool) -> None:
        """Start a cooldown of kindlm's own, longer each time."""
        cooldown_s = min(LONGEST_COOLDOWN_S, FIRST_COOLDOWN_S * 2.0**self._backoffs)
        rest_of_minute = congestion.began + MINUTE_S - self._clock.monotonic()
        if self._backoffs >= SHORT_COOLDOWNS and rest_of_minute > 0 and not asked:
            cooldown_s = max(FIRST_COOLDOWN_S, rest_of_minute)
        self._cool_down(cooldown_s)
        self._backoffs += 1
        self._probing = again or congestion.known is None

    def _recover(self, congestion: _Cycle) -> None:
        """Climb to the measured limit, in a new epoch and cycle."""
        congestion.is_single = False
        self._climb = congestion.climb(self.cooldown_s) or self._climb
        self._epoch = self._sent
        self._cycle = None
        self._refusals = 1.0

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
