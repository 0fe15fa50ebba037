"""What repeats that are added to AFTER a few at a time have shown, whenever one looks."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import log

from kindlm.history.statistics.intervals import wilson_interval
from kindlm.history.statistics.pass_rates import (
    Looks,
    confirmed_drops,
    expected_by_chance,
    pass_rate_drop,
)
from kindlm.history.statistics.tables import Counts

__all__ = ["Settlement", "settlements"]

_DROP = 0.3
"""The drop of the pass rate that a cleared test may still hide in one of ten cases."""

_CLEARING_ODDS = 10.0
_REPEATED = 2


class Settlement(StrEnum):
    """What a test has come to. Undecided: more repeats of AFTER may decide it."""

    CONFIRMED = "confirmed"
    CLEARED = "cleared"
    UNDECIDED = "undecided"
    EXHAUSTED = "exhausted"
    BEFORE_TOO_SMALL = "before too small"


def settlements(tests: Sequence[Looks], level: float) -> list[Settlement]:
    """Tell what each test has come to, with at most `level` of the confirmed ones false.

    All repeated tests of the run are given, also those that nothing was added to: any of them
    might have been the one that looked suspicious. BEFORE is too small if all that may be added
    would neither confirm nor clear the test, wherever in its 95 % interval the pass rate of AFTER
    is; exhausted is a test that may have no more repeats.
    """
    found = confirmed_drops(tests, level)
    return [
        Settlement.CONFIRMED if confirmed else _unconfirmed(looks, tests, level)
        for looks, confirmed in zip(tests, found, strict=True)
    ]


def _unconfirmed(looks: Looks, tests: Sequence[Looks], level: float) -> Settlement:
    last = looks.after[-1]
    if _cleared(looks.before, last):
        return Settlement.CLEARED
    if last.n >= looks.after[0].n + looks.more:
        return Settlement.EXHAUSTED
    if looks.before.n < _REPEATED:
        return Settlement.BEFORE_TOO_SMALL
    worst, best = _prospects(looks)
    if _cleared(looks.before, best):
        return Settlement.UNDECIDED
    ended = looks._replace(after=(looks.after[0], worst))
    confirmed = pass_rate_drop(ended) <= level
    confirmed = confirmed and expected_by_chance(ended.smallest_p, tests) <= level
    return Settlement.UNDECIDED if confirmed else Settlement.BEFORE_TOO_SMALL


def _prospects(looks: Looks) -> tuple[Counts, Counts]:
    """Return AFTER with all that may be added, at the ends of the 95 % interval of its rate."""
    last = looks.after[-1]
    most = looks.after[0].n + looks.more
    low, high = wilson_interval(*last) or (0.0, 1.0)
    worst, best = (last.passed + int(rate * (most - last.n) + 0.5) for rate in (low, high))
    return Counts(worst, most), Counts(best, most)


def _cleared(before: Counts, after: Counts) -> bool:
    """Tell whether AFTER, added repeats included, speaks against a drop of 30 points.

    A. Wald's sequential ratio ("Sequential Analysis" (1947), chapter 3): the passes are ten times
    likelier at the pass rate of BEFORE, (k + 1/2) / (n + 1), than at one 30 points below, or at
    half of it where that is higher. Of tests that did drop so far from there, one of ten gets
    cleared at most, whenever one looks.
    """
    same = (before.passed + 0.5) / (before.n + 1)
    dropped = max(same - _DROP, same / 2)
    failed = after.n - after.passed
    odds = after.passed * log(same / dropped) + failed * log((1 - same) / (1 - dropped))
    return odds >= log(_CLEARING_ODDS)
