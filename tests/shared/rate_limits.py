"""How servers limit requests: in a window of a minute, or by a bucket."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left of a limit, and in how many seconds it is whole again."""

    left: int
    limit: int
    reset_s: float


class SlidingWindow:
    """At most so many requests within any minute; all of them may come at once."""

    def __init__(self, per_minute: int) -> None:
        self._most = per_minute
        self._taken: deque[float] = deque()

    def take(self, now: float) -> bool:
        """Whether one more request is allowed, which counts then."""
        self._forget(now)
        if len(self._taken) >= self._most:
            return False
        self._taken.append(now)
        return True

    def wait_s(self, now: float) -> float:
        """In how many seconds one more request will be allowed."""
        self._forget(now)
        if len(self._taken) < self._most:
            return 0.0
        return WINDOW_S - (now - self._taken[0]) if self._taken else WINDOW_S

    def allowance(self, now: float) -> Allowance:
        """What is left."""
        self._forget(now)
        reset_s = WINDOW_S - (now - self._taken[-1]) if self._taken else 0.0
        return Allowance(self._most - len(self._taken), self._most, reset_s)

    def _forget(self, now: float) -> None:
        while self._taken and now - self._taken[0] >= WINDOW_S:
            self._taken.popleft()


class TokenBucket:
    """At most `burst` requests at once; so many a minute come back, evenly."""

    def __init__(self, per_minute: int, burst: int) -> None:
        self._rate = per_minute / WINDOW_S
        self._burst = burst
        self._tokens = float(burst)
        self._filled_at = -math.inf

    def take(self, now: float) -> bool:
        """Whether one more request is allowed, which counts then."""
        self._fill(now)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def wait_s(self, now: float) -> float:
        """In how many seconds one more request will be allowed."""
        self._fill(now)
        return self._seconds(1 - self._tokens)

    def allowance(self, now: float) -> Allowance:
        """What is left."""
        self._fill(now)
        return Allowance(int(self._tokens), self._burst, self._seconds(self._burst - self._tokens))

    def _seconds(self, tokens: float) -> float:
        if tokens <= 0:
            return 0.0
        return tokens / self._rate if self._rate else WINDOW_S

    def _fill(self, now: float) -> None:
        if self._rate:
            gained = (now - self._filled_at) * self._rate
            self._tokens = min(self._burst, self._tokens + gained)
        self._filled_at = now


Limit = SlidingWindow | TokenBucket
"""Counts requests; times are seconds of one clock, and never go back."""
