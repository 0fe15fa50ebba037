"""How often a call is expected: `count: { min, max }`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kindlm.wording import count

__all__ = ["CallCount"]


@dataclass(frozen=True, slots=True)
class CallCount:
    """At least `low` and at most `high` calls; without `high` there is no upper bound."""

    low: int
    high: int | None

    @classmethod
    def read(cls, params: Mapping[str, Any] | None) -> CallCount:
        """Read a count. What is expected happens: without `min`, at least once.

        An upper bound of 0 says that it does not happen.
        """
        params = params or {}
        high: int | None = params.get("max")
        low: int | None = params.get("min")
        if low is None:
            low = 0 if high == 0 else 1
        return cls(low, high)

    def holds(self, number: int) -> bool:
        """Tell whether a number of calls is within the bounds."""
        return self.low <= number and (self.high is None or number <= self.high)

    def __str__(self) -> str:
        if self.high is None:
            return f"at least {count(self.low, 'call')}"
        if self.low == self.high:
            return f"exactly {count(self.low, 'call')}"
        if self.low == 0:
            return f"at most {count(self.high, 'call')}"
        return f"{self.low} to {count(self.high, 'call')}"
