"""The money of a run: what is spent, and whether more may be started."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Budget"]


class Budget:
    """Counts what is spent, judges included, as far as prices are known.

    A limit stops what has not started yet: what is in flight finishes, so that no more is spent
    beyond the limit than the executions in flight cost.

    Args:
        suites: The `costMaxUsd` of suites that have one, in USD by ordinal.
        most_usd: The limit for the whole run, if there is one.
        spent: What earlier sessions of the run spent, in USD by ordinal.
    """

    def __init__(
        self,
        suites: Mapping[int, float],
        most_usd: float | None = None,
        spent: Mapping[int, float] | None = None,
    ) -> None:
        self._limits = suites
        self._most_usd = most_usd
        self._spent = dict(spent or {})
        self.total_usd = sum(self._spent.values())

    def spend(self, ordinal: int, usd: float) -> None:
        """Count what a call of a suite cost."""
        self._spent[ordinal] = self._spent.get(ordinal, 0.0) + usd
        self.total_usd += usd

    @property
    def is_used_up(self) -> bool:
        """Whether the run has spent more than it may."""
        return self._most_usd is not None and self.total_usd > self._most_usd

    def limit_exceeded(self, ordinal: int) -> float | None:
        """Return the limit of a suite that has spent more than that, else None."""
        limit = self._limits.get(ordinal)
        return limit if limit is not None and self._spent.get(ordinal, 0.0) > limit else None
