"""The money of a run: what is spent, and whether more may be started."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kindlm.money import exceeds
from kindlm.transcript import Cost

__all__ = ["Budget"]


class Budget:
    """Counts what is spent, judges included, as far as prices are known.

    Once a limit is passed, no further call is to be made. Those in flight are answered, so that no
    more is spent beyond the limit than they cost.

    Args:
        suites: The `costMaxUsd` of suites that have one, in USD by ordinal.
        most_usd: The limit for the whole run, if there is one.
        spent: What earlier sessions of the run spent, in USD by ordinal.
        passed: Is told when a suite, or the run, has spent more than it may, with each call that is
            answered then.
        unpriced: Is told once of each model whose calls no limit can count.
    """

    def __init__(
        self,
        suites: Mapping[int, float],
        most_usd: float | None = None,
        spent: Mapping[int, float] | None = None,
        *,
        passed: Callable[[], None] = lambda: None,
        unpriced: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._limits = suites
        self._most_usd = most_usd
        self._spent = dict(spent or {})
        self._tell_passed = passed
        self._tell_unpriced = unpriced
        self._told: set[str] = set()
        self.total_usd = sum(self._spent.values())

    def spend(self, ordinal: int, model: str, cost: Cost) -> None:
        """Count what a call of a suite cost."""
        if cost.usd is None:
            if self.is_limited(ordinal) and model not in self._told:
                self._told.add(model)
                self._tell_unpriced(model)
            return
        self._spent[ordinal] = self._spent.get(ordinal, 0.0) + cost.usd
        self.total_usd += cost.usd
        if self.is_spent(ordinal):
            self._tell_passed()

    def is_limited(self, ordinal: int) -> bool:
        """Tell whether anything limits what a suite may cost."""
        return self._most_usd is not None or ordinal in self._limits

    @property
    def is_used_up(self) -> bool:
        """Whether the run has spent more than it may."""
        return self._most_usd is not None and exceeds(self.total_usd, self._most_usd)

    def limit_exceeded(self, ordinal: int) -> float | None:
        """Return the limit of a suite that has spent more than that, else None."""
        limit = self._limits.get(ordinal)
        if limit is None or not exceeds(self._spent.get(ordinal, 0.0), limit):
            return None
        return limit

    def is_spent(self, ordinal: int) -> bool:
        """Tell whether a suite, or the run, has spent more than it may."""
        return self.is_used_up or self.limit_exceeded(ordinal) is not None
