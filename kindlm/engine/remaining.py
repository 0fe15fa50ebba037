"""What is left of the requests that a provider allows, as it told with its last answer."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from kindlm.ports import Quota

__all__ = ["Remaining"]

FEW = 1 / 10
"""The part of a quota that is spread."""

FEW_WITHOUT_LIMIT = 6.0
"""How many are spread where it is not told what they are a part of."""

WINDOW_S = 60.0
"""Limits are mostly per minute."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What was left when the call of this number was made."""

    number: int
    at: float
    quota: Quota
    reset_at: float

    @property
    def few(self) -> float:
        return self.quota.limit * FEW if self.quota.limit else FEW_WITHOUT_LIMIT

    @property
    def refill(self) -> float:
        """What comes back in a second."""
        limit, reset_s = self.quota.limit, self.quota.reset_s
        if not limit or not reset_s:
            return 0.0
        # What comes back of a bucket, or of a sliding window, that is whole in so many
        # seconds; a fixed window gives nothing back, so no more than all of it in a minute.
        return min(max(0, limit - self.quota.left) / reset_s, limit / WINDOW_S)


class Remaining:
    """Counts the calls that were made, and says when the next one does not overdraw the quota."""

    def __init__(self) -> None:
        self._sent = 0
        self._starts: deque[float] = deque()
        self._told: _Told | None = None

    def started(self, now: float) -> None:
        """Count a call."""
        self._sent += 1
        self._starts.append(now)
        while self._starts[0] <= now - 2 * WINDOW_S:
            self._starts.popleft()

    def heed(self, number: int, at: float, quota: Quota, reset_at: float) -> None:
        """Take in what was told with the answer to a call that was made at `at`."""
        if self._told is None or number >= self._told.number:
            self._told = _Told(number, at, quota, reset_at)

    def until(self, now: float) -> float:
        """Return before what time no call should start."""
        told = self._told
        if told is None or now >= told.reset_at:
            return -math.inf
        back = told.refill * (now - told.at)
        left = told.quota.left - max(0.0, self._sent - told.number - back)
        if left > told.few:
            return -math.inf
        until = min(told.reset_at, self._one_is_back(told))
        if left < 1 or not self._starts:
            return until
        return min(until, self._starts[-1] + (told.reset_at - now) / left)

    def _one_is_back(self, told: _Told) -> float:
        """Return when the oldest of the calls that used up the quota is a minute old.

        A sliding window has room again then, though it is not whole for long; a fixed one was
        whole before. Where somebody else used up a part, nothing is known of when.
        """
        limit = told.quota.limit or 0
        used = limit - told.quota.left + self._sent - told.number
        if not limit or not 0 < used <= len(self._starts):
            return math.inf
        oldest = self._starts[-used]
        if oldest <= told.at - WINDOW_S:
            return math.inf
        return max(oldest + WINDOW_S, self._starts[-1] + WINDOW_S / limit)
