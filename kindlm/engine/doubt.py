"""Whether a refusal shows a limit, or came alone: some servers refuse a few calls at any rate.

A limit that is reached refuses what comes next as well; an overload that hits one call of ten does
not. So the first refusal is doubted: the calls that started after it tell, those under way and, if
these are too few, three more at once, faster than a limit that was reached could let through.

A pace of which a rate is known is doubted where it should not be refused at all: below the limit
that was found. Such refusals in a row mean that the limit is wrong, or that there is none. Three
calls tell little where so few may be in flight that they hardly come faster than the limit allows:
the rate is given up, but whether there is none shows when the next call is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kindlm.engine.recovery import Recovery, Refusal

__all__ = ["ENOUGH", "Doubt", "Doubts"]

ENOUGH = 3
"""Good answers that show that a refusal was alone."""

TOO_MANY = 2
"""Further refusals that show a limit."""

FREE_DOUBTS = 3
"""How often refusals may be alone before a rate is measured; twice as often each time that no limit
was found where one had been measured. A limit that is just exceeded refuses single calls too."""

RAREST = 4
"""Where a limit was found again, only every second, then fourth refusal below it is doubted."""

AFTER_ALONE = 2
"""The same where it was found again only after the refusal had been taken for alone."""

SAME_RATE = 1.25
"""A limit is found again where no more than so many times its rate was let through."""


@dataclass(slots=True)
class Doubt:
    """A refusal that may have come alone.

    Calls after number `first` tell; those up to `last` had started when it came. `known` is the
    recovery that is suspended meanwhile, `asked` whether the provider named a time to wait: then
    what starts after that time tells little, for a limit has room again.
    """

    refusal: Refusal
    first: int
    last: int
    asked: bool
    known: Recovery | None
    good: int = 0
    bad: int = 0

    def verdict(self, *, waits: bool) -> Literal["alone", "limit"] | None:
        """Return what is known by now; `waits` while calls up to `last` are under way."""
        if self.bad >= TOO_MANY and (self.known is not None or self.bad >= self.good):
            return "limit"
        if self.good >= ENOUGH and self.good > self.bad:
            return "alone"
        if self.asked and self.known is None and not waits:
            return "alone" if self.good > 2 * self.bad else "limit"
        return None


class Doubts:
    """Decides which refusals are doubted; learns from what came of it."""

    def __init__(self) -> None:
        self._left = self._granted = FREE_DOUBTS
        self._every = 1
        self._undoubted = 0
        self._alone: Doubt | None = None
        self._good = 0
        self.in_a_row = 0
        """Refusals of a known rate since it was last at its limit."""

    @property
    def any_refusal(self) -> bool:
        """Whether anything was ever refused."""
        return self._left < self._granted or self._granted > FREE_DOUBTS

    def answered(self) -> None:
        """Count a good answer."""
        self._good += 1

    def belied(self, started_at: float) -> Recovery | None:
        """Return the rate that was given up for a refusal that was not alone after all, if so.

        The next refusal shows it, of a call that started at `started_at`: a limit only just
        exceeded refuses one call and lets three through, but in all no more than its rate. The more
        often no limit was found, the less of a likeness is taken for one.
        """
        doubt, self._alone = self._alone, None
        if doubt is None or doubt.known is None:
            return None
        seconds = started_at - doubt.refusal.refused_at
        likeness = SAME_RATE * FREE_DOUBTS / self._granted
        if self._good <= 1 + likeness * doubt.known.limit * seconds:
            self.in_a_row += 1
            self._every = max(AFTER_ALONE, self._every)
            return doubt.known
        self.in_a_row = 0
        self._every = 1
        self._granted *= 2
        self._left = self._granted
        return None

    def doubts(self, known: Recovery | None) -> bool:
        """Take note of the first refusal of an epoch, and return whether it is doubted."""
        if known is None:
            self._left -= 1
            return self._left >= 0
        if not known.on_the_way:
            self.in_a_row = self._undoubted = 0
            return False
        self.in_a_row += 1
        self._undoubted += 1
        return self._undoubted >= self._every

    def settled(self, doubt: Doubt, *, alone: bool) -> None:
        """Take note of what a doubt came to."""
        if doubt.known is None:
            return
        self._undoubted = 0
        if alone:
            self._alone = doubt
            self._good = doubt.good
        else:
            self._every = min(RAREST, 2 * self._every)
