"""Tests whether pass rates fell, of one test and of many at once.

The repeats of a test are independent. Outcomes are ordered by the p-value of R. A. Fisher's exact
test ("The Logic of Inductive Inference", JRSS 98 (1935), 39-54). Taken at its word, that p-value is
far too cautious for few repeats: 3 of 3 against 0 of 3 has 0.05, although no pass rate gives that
outcome more often than in 1 of 64 cases. So the p-value of one test is the probability, at the
worst pass rate, of a Fisher p as small as the one seen: the exact unconditional test of
R. D. Boschloo (Statistica Neerlandica 24 (1970), 1-35), which is never weaker than Fisher's.

AFTER may be looked at more than once while repeats are added to it. Waiting for a small p-value is
allowed for by the same means: the probability is that of a Fisher p so small at any look, after
every repeat that may be added, computed exactly over all paths (a group-sequential boundary of
equal p-values: S. J. Pocock, Biometrika 64 (1977), 191-199). The same goes for repeats that are
added to both sides, equally many, with a look after every few of them.

A test is settled when further repeats would decide nothing: see `Settlement`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate, takewhile
from math import ceil, comb, fsum, log, sqrt
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

from kindlm.history.statistics import wilson_interval
from kindlm.history.statistics.tables import (
    OFTEN,
    Counts,
    convolved,
    even_chances,
    fisher_drop,
    fisher_mid_p,
    pooled,
)

_GRID = 64
"""The worst rate is looked for in steps of 1/64, then in finer ones around the best."""

BLOCK = 5
"""Where repeats are added to both sides, they are looked at when both have so many more."""

_MOST_EXACT = 60
"""Up to so many repeats on a side, the power is computed; above, the normal formula is close."""

_DROP = 0.3
"""The drop of the pass rate that a cleared test may still hide in one of ten cases."""

_CLEARING_ODDS = 10.0


class Design(NamedTuple):
    """Repeats before, those after that nothing was added to, and how many may be added.

    They are added to AFTER, or to `both` sides, equally many.
    """

    before: int
    after: int
    more: int
    both: bool = False


class Looks(NamedTuple):
    """BEFORE, and AFTER at each look with all repeats until then; at first, those of the run.

    `more` is how many repeats may be added to those of the run, with a look after each. Where they
    are added to both sides, `grown` is BEFORE at each look.
    """

    before: Counts
    after: tuple[Counts, ...]
    more: int = 0
    grown: tuple[Counts, ...] = ()

    @property
    def smallest_p(self) -> float:
        """The smallest of Fisher's p-values at the looks."""
        before = self.grown or [self.before] * len(self.after)
        return min(map(fisher_drop, before, self.after))

    @property
    def design(self) -> Design:
        """What was fixed before anything came out."""
        return Design(self.before.n, self.after[0].n, self.more, bool(self.grown))

    @property
    def pooled(self) -> Counts:
        """All repeats, of both sides."""
        old, new = (self.grown or (self.before,))[-1], self.after[-1]
        return Counts(old.passed + new.passed, old.n + new.n)


Kinds: TypeAlias = frozenset[tuple[tuple[Design, Counts], int]]
"""How many tests there are of each design and of each number of passed repeats."""


def pass_rate_drop(looks: Looks) -> float:
    """Return the one-sided p-value of one test for a drop, however one came to stop looking."""
    return worst_chance(looks.smallest_p, looks.design)


def confirmed_drops(tests: Sequence[Looks], level: float) -> list[bool]:
    """Return which tests dropped, with at most `level` of them expected to be false.

    The step-up of Y. Benjamini and Y. Hochberg ("Controlling the false discovery rate", JRSS B 57
    (1995), 289-300): the k smallest p-values are believed for the largest k at which at most
    level x k of all tests are expected to get there by chance. They count each of m tests with p.
    But with few repeats most tests can't get there, whatever happens, least of all those that
    always pass; counting them in would cost all power. So each counts as `expected_by_chance` says,
    and those that would be believed for no more than at the worst pass rate.

    Besides, each drop has to be convincing by itself: its own p-value is at most `level`. If
    nothing changed at all, any drop is false, and `level` is the probability of one. What is
    expected is an estimate, which makes this approximate; simulations in the tests hold it.
    """
    # What is to be known of a test to judge it as one of many; those that agree count together.
    kinds = [(looks.smallest_p, looks.design, looks.pooled) for looks in tests]
    counted = Counter(kinds)
    convincing = {kind for kind in counted if worst_chance(*kind[:2]) <= level}
    believed = -1.0
    for p in sorted({kind[0] for kind in convincing}):
        expected, found = 0.0, 0
        for kind, count in counted.items():
            chance = _expected(p, *kind[1:])
            if kind in convincing and kind[0] <= p:
                chance = min(chance, worst_chance(p, kind[1]))
                found += count
            expected += count * chance
        if expected <= level * found:
            believed = p
    return [kind in convincing and kind[0] <= believed for kind in kinds]


def kinds_of(tests: Iterable[Looks]) -> Kinds:
    """Count tests by all that `expected_by_chance` asks of one."""
    return frozenset(Counter((looks.design, looks.pooled) for looks in tests).items())


def expected_by_chance(p: float, tests: Kinds) -> float:
    """Return how many of the tests are expected to get to Fisher's p if nothing changed."""
    return fsum(count * _expected(p, *kind) for kind, count in tests)


def _expected(p: float, design: Design, pooled: Counts) -> float:
    """Return how likely a test is to get to Fisher's p if nothing changed.

    Of a single look: given how many repeats of both sides passed, the probability is the largest
    Fisher p up to this one (J. F. Heyse, "A false discovery rate procedure for categorical data"
    (2011)); on average over what may pass this is the probability at the test's own pass rate,
    whatever it is. Of several looks: the probability at the pass rate of both sides together.
    """
    if design.more:
        return _chance(p, design, pooled.passed / pooled.n)
    passed = pooled.passed
    reached = (
        fisher_drop(Counts(before, design.before), Counts(passed - before, design.after))
        for before in range(min(passed, design.before), max(0, passed - design.after) - 1, -1)
    )
    return max(takewhile(lambda own: own <= p, reached), default=0.0)


@lru_cache(maxsize=65536)
def _chance(p: float, design: Design, rate: float) -> float:
    """Return the probability, at one pass rate, that Fisher's p gets so small at any look."""
    up, down = 2 * rate, 2 * (1 - rate)  # the crossings are those of a rate of 1/2
    shares = enumerate(_crossings(p, design))
    n = design.before + design.after + (2 if design.both else 1) * design.more
    return sum(share * up**passed * down ** (n - passed) for passed, share in shares if share)


@lru_cache(maxsize=8192)
def worst_chance(p: float, design: Design) -> float:
    """Return the probability, at the worst rate, that Fisher's p gets so small at any look."""
    best = max(range(1, _GRID), key=lambda step: _chance(p, design, step / _GRID))
    finer = ((best - 1) / _GRID + step / _GRID**2 for step in range(1, 2 * _GRID))
    return max(_chance(p, design, rate) for rate in finer)


@lru_cache(maxsize=1024)
def _crossings(p: float, design: Design) -> list[float]:
    """Return how likely Fisher's p gets so small, by all passes in the end, at a rate of 1/2."""
    old, new = (even_chances(n) for n in design[:2])
    return crossings(p, design, [[x * y for y in new] for x in old], (0.5, 0.5))


def crossings(
    p: float,
    design: Design,
    shares: Sequence[Sequence[float]],
    rates: tuple[float, float],
    added: int = 0,
) -> list[float]:
    """Return how likely Fisher's p gets so small from here on, by the passes of both in the end.

    `shares` is the chance of each number of passes before (rows) and after (columns), with as many
    repeats `added` until now; further ones pass at these `rates`. What comes after p got so small
    changes nothing: it is counted only so that all courses are of the same length.
    """
    step = BLOCK if design.both else 1
    old_ways, new_ways = (binomial(step, rate) for rate in rates)
    rows = [list(row) for row in shares]
    found = [0.0] * (len(rows) + len(rows[0]) - 1)
    for more in range(added, design.more + 1, step):
        old_n, new_n = design.before + (more if design.both else 0), design.after + more
        limit = -1
        for old, row in enumerate(rows):
            # More passes before make p smaller, so that the most passes after only grow with them.
            before = Counts(old, old_n)
            while limit < new_n and fisher_drop(before, Counts(limit + 1, new_n)) <= p:
                limit += 1
            for new in range(limit + 1):
                found[old + new] += row[new]
                row[new] = 0.0
        if more < design.more:
            rows = [convolved(row, new_ways) for row in rows]
            found = convolved(found, new_ways)
        if more < design.more and design.both:
            columns = [convolved(column, old_ways) for column in zip(*rows, strict=True)]
            rows = [list(row) for row in zip(*columns, strict=True)]
            found = convolved(found, old_ways)
    return found


@lru_cache(maxsize=16384)
def binomial(n: int, rate: float) -> tuple[float, ...]:
    """Return the chance of each number of passes of n."""
    return tuple(comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(n + 1))


def _rough_power(n: int, before: float, after: float, level: float) -> float:
    """Return about how often a drop between two pass rates is confirmed with n repeats a side.

    Quicker than `power`, which is exact: it goes by the mid-p of Fisher's test, which is close to
    the p-value of `pass_rate_drop`. Computed over all outcomes.
    """
    at_most = list(accumulate(binomial(n, after), initial=0.0))
    limits = _limits(n, level)
    return sum(
        chance * at_most[limit + 1]
        for chance, limit in zip(binomial(n, before), limits, strict=True)
    )


@lru_cache(maxsize=4096)
def _limits(n: int, level: float) -> tuple[int, ...]:
    """Return, for each number of passes before, the most passes after that show a drop (or -1)."""
    limits = []
    limit = -1
    for passed in range(n + 1):
        before = Counts(passed, n)
        while limit < n and fisher_mid_p(before, Counts(limit + 1, n)) <= level:
            limit += 1
        limits.append(limit)
    return tuple(limits)


@lru_cache(maxsize=16384)
def repeats_needed(before: float, after: float, level: float) -> int | None:
    """Return the repeats per side that show a drop between two pass rates, None without a drop.

    The smallest number that shows it about as `OFTEN`; from 60 on by the normal formula,
    n = (z(1 - a) √(2 p (1 - p)) + z(w) √(p1 (1 - p1) + p2 (1 - p2)))² / (p1 - p2)², p the mean
    rate: J. L. Fleiss, "Statistical Methods for Rates and Proportions" (1981), section 3.2.
    """
    if before <= after:
        return None
    normal, mean = NormalDist(), (before + after) / 2
    spread = before * (1 - before) + after * (1 - after)
    root = normal.inv_cdf(1 - level) * sqrt(2 * mean * (1 - mean))
    root += normal.inv_cdf(OFTEN) * sqrt(spread)
    rough = ceil((root / (before - after)) ** 2)
    for n in range(max(2, rough // 2), _MOST_EXACT + 1):
        if _rough_power(n, before, after, level) >= OFTEN:
            return n
    return max(rough, _MOST_EXACT + 1)


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
