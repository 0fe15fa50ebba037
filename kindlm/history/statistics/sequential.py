"""What repeats show that are added a few at a time, however often one looks at them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import accumulate, takewhile
from math import log

from kindlm.history.statistics.intervals import wilson_interval
from kindlm.history.statistics.pass_rates import (
    BLOCK,
    Looks,
    confirmed_drops,
    expected_by_chance,
    kinds_of,
    pass_rate_drop,
)
from kindlm.history.statistics.tables import Counts, pooled

_DROP = 0.3
"""The drop of the pass rate that a cleared test may still hide in one of ten cases."""

_CLEARING_ODDS = 10.0


class Settlement(StrEnum):
    """What a test has come to. Undecided: more repeats of AFTER may decide it.

    Of a test and its checks, that which comes first here decides: one that is confirmed, else one
    that wants more repeats; only if all are cleared is the test.
    """

    CONFIRMED = "confirmed"
    UNDECIDED = "undecided"
    EXHAUSTED = "exhausted"
    BEFORE_TOO_SMALL = "before too small"
    CLEARED = "cleared"


def settlements(
    tests: Sequence[Looks],
    level: float,
    added_before: Sequence[Sequence[Counts]] = (),
    *,
    both: bool = False,
) -> list[Settlement]:
    """Return what each test has come to, with at most twice `level` of the confirmed ones false.

    All repeated tests of the run are given, also those that nothing was added to: any of them
    might have been the one that looked suspicious. `added_before` are the repeats that were added
    to BEFORE, too, for each test; with `both`, more of them may be. A drop is confirmed by the
    repeats that were added to AFTER alone, or by those that were added to both sides, each at
    `level`.

    BEFORE is too small if all that may be added to AFTER alone would neither confirm nor clear the
    test, wherever in its 95 % interval the pass rate of AFTER is; exhausted is a test that may have
    no more repeats.
    """
    added_before = added_before or [()] * len(tests)
    found = confirmed_drops(tests, level)
    if any(added_before):
        paired = [together(*each) for each in zip(tests, added_before, strict=True)]
        found = [x or y for x, y in zip(found, confirmed_drops(paired, level), strict=True)]

    kinds = kinds_of(tests)

    def confirms(looks: Looks) -> bool:
        chance = pass_rate_drop(looks)
        return chance <= level and expected_by_chance(looks.smallest_p, kinds) <= level

    return [
        Settlement.CONFIRMED
        if confirmed
        else _unconfirmed(looks, added, confirms, both=both or bool(added))
        for looks, added, confirmed in zip(tests, added_before, found, strict=True)
    ]


def together(looks: Looks, added_before: Sequence[Counts]) -> Looks:
    """Return the looks at which equally many repeats had been added to both sides."""
    grown = accumulate(added_before, lambda *both: pooled(both), initial=looks.before)
    old = {counts.n - looks.before.n: counts for counts in grown}
    new = {counts.n - looks.after[0].n: counts for counts in looks.after}
    at = list(takewhile(lambda n: n in old and n in new, range(0, looks.more + 1, BLOCK)))
    return looks._replace(after=tuple(new[n] for n in at), grown=tuple(old[n] for n in at))


def large_drop(before: Counts) -> tuple[float, float]:
    """Return the pass rate of BEFORE and one 30 points below, or half of it if that is higher.

    That of BEFORE is taken a little high, (k + 3/4) / (n + 1): from one that is too low, a rate
    that dropped would look like one that did not.
    """
    same = (before.passed + 0.75) / (before.n + 1)
    return same, max(same - _DROP, same / 2)


def _unconfirmed(
    looks: Looks, added_before: Sequence[Counts], confirms: Callable[[Looks], bool], *, both: bool
) -> Settlement:
    """Return what a test has come to whose drop is not confirmed."""
    first, last = looks.after[0], looks.after[-1]
    before = pooled([looks.before, *added_before])
    if _cleared(before, last):
        return Settlement.CLEARED
    added = min(last.n - first.n, before.n - looks.before.n) if both else last.n - first.n
    if added >= looks.more:
        return Settlement.EXHAUSTED
    if both:
        return Settlement.UNDECIDED
    if looks.before.n < 2:
        return Settlement.BEFORE_TOO_SMALL
    # With all that may be added, at both ends of the 95 % interval of the rate of AFTER.
    most = first.n + looks.more
    worst, best = (
        Counts(last.passed + int(rate * (most - last.n) + 0.5), most)
        for rate in wilson_interval(*last) or (0.0, 1.0)
    )
    if _cleared(looks.before, best) or confirms(looks._replace(after=(first, worst))):
        return Settlement.UNDECIDED
    return Settlement.BEFORE_TOO_SMALL


def _cleared(before: Counts, after: Counts) -> bool:
    """Return whether AFTER, added repeats included, speaks against a drop of 30 points.

    A. Wald's sequential ratio ("Sequential Analysis" (1947), chapter 3): the passes are ten times
    likelier at the pass rate of BEFORE than after a `large_drop` from there. Of suspected tests
    whose pass rate did drop by 30 points, at most one of ten is cleared, whenever one looks: from
    three repeats before on, computed over all outcomes in the tests.
    """
    same, dropped = large_drop(before)
    failed = after.n - after.passed
    odds = after.passed * log(same / dropped) + failed * log((1 - same) / (1 - dropped))
    return odds >= log(_CLEARING_ODDS)
