"""Tests whether pass rates fell, for one test and for many at once.

The repeats of a test are independent. Outcomes are ordered by the p-value of R. A. Fisher's exact
test ("The Logic of Inductive Inference", JRSS 98 (1935), 39-54). For few repeats, that p-value is
far too cautious: 3 of 3 against 0 of 3 has 0.05, although at any pass rate, that outcome has at
most the probability 1/64. So the p-value of one test is the probability, at the worst pass rate, of
a Fisher p as small as the observed one. This is the exact unconditional test of R. D. Boschloo
(Statistica Neerlandica 24 (1970), 1-35), which is never weaker than Fisher's.

Repeats may be added to AFTER, with a look at the results after each, or the same number to both
sides, with a look after every few. Then the p-value is the probability of such a Fisher p at any
look, computed exactly over all paths (a group-sequential boundary of equal p-values: S. J. Pocock,
Biometrika 64 (1977), 191-199).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate, takewhile
from math import ceil, comb, fsum, log
from typing import NamedTuple, TypeAlias

from kindlm.history.statistics import tables, wilson_interval
from kindlm.history.statistics.tables import Counts, pooled

_GRID = 64
"""The worst rate is searched in steps of 1/64, then in finer steps around the best of these."""

BLOCK = 5
"""Repeats on each side between two looks, if repeats are added to both sides."""

_DROP = 0.3
"""The drop of the pass rate that at most one of ten cleared tests hides."""

_CLEARING_ODDS = 10.0

MOST_REPEATS = 1_000
"""Repeats of both sides up to which chances are computed: they come from powers of 1/2 and 2."""


class Design(NamedTuple):
    """The repeats of BEFORE and AFTER, and how many may be added to AFTER, or to `both` sides."""

    before: int
    after: int
    more: int
    both: bool = False


class Looks(NamedTuple):
    """BEFORE, and AFTER at each look: first the repeats of the run, then with added ones.

    `more` is how many repeats may be added in all. If repeats are added to both sides, `grown` is
    BEFORE at each look.
    """

    before: Counts
    after: tuple[Counts, ...]
    more: int = 0
    grown: tuple[Counts, ...] = ()

    @property
    def smallest_p(self) -> float:
        """The smallest of Fisher's p-values at the looks."""
        before = self.grown or [self.before] * len(self.after)
        return min(map(tables.fisher_drop, before, self.after))

    @property
    def design(self) -> Design:
        """The design, which was fixed before the results."""
        return Design(self.before.n, self.after[0].n, self.more, bool(self.grown))

    @property
    def pooled(self) -> Counts:
        """All repeats, of both sides."""
        return pooled(((self.grown or (self.before,))[-1], self.after[-1]))


Kinds: TypeAlias = frozenset[tuple[tuple[Design, Counts], int]]
"""The number of tests of each design and of each number of passed repeats on both sides."""


def pass_rate_drop(looks: Looks) -> float:
    """Return the one-sided p-value of one test for a drop, whatever ended the looks."""
    return worst_chance(looks.smallest_p, looks.design)


def confirmed_drops(tests: Sequence[Looks], level: float) -> list[bool]:
    """Return which tests dropped, with at most `level` of them expected to be false.

    This is the step-up of Y. Benjamini and Y. Hochberg ("Controlling the false discovery rate",
    JRSS B 57 (1995), 289-300). It confirms the k smallest p-values, for the largest k at which at
    most level x k of all tests are expected to reach such a p-value by chance. They count p for
    each test. But with few repeats most tests cannot reach a small p, least of all those that
    always pass, and counting them would cost all power. So each test counts as `expected_by_chance`
    says, and a confirmed one at most as at the worst pass rate.

    In addition, the p-value of each confirmed drop is at most `level`. If nothing changed at all,
    any drop is false, and `level` is the probability of one. The expectation is an estimate, so
    these bounds are approximate; simulations in the tests check them.
    """
    # Tests of the same kind count together.
    kinds = [(looks.smallest_p, looks.design, looks.pooled) for looks in tests]
    counted = Counter(kinds)
    convincing = {kind for kind in counted if worst_chance(*kind[:2]) <= level}
    limit = -1.0
    for p in sorted({kind[0] for kind in convincing}):
        expected, found = 0.0, 0
        for kind, count in counted.items():
            chance = _expected(p, *kind[1:])
            if kind in convincing and kind[0] <= p:
                chance = min(chance, worst_chance(p, kind[1]))
                found += count
            expected += count * chance
        if expected <= level * found:
            limit = p
    return [kind in convincing and kind[0] <= limit for kind in kinds]


def kinds_of(tests: Iterable[Looks]) -> Kinds:
    """Count tests by their kind."""
    return frozenset(Counter((looks.design, looks.pooled) for looks in tests).items())


def expected_by_chance(p: float, tests: Kinds) -> float:
    """Return how many of the tests are expected to reach Fisher's p if nothing changed."""
    return fsum(count * _expected(p, *kind) for kind, count in tests)


def _expected(p: float, design: Design, pooled: Counts) -> float:
    """Return the probability that a test reaches Fisher's p if nothing changed.

    With a single look, this is the largest attainable Fisher p up to `p`, given the passes of both
    sides (J. F. Heyse, "A false discovery rate procedure for categorical data" (2011)). Its mean
    over all passes is the probability at the test's own pass rate, whatever that is. With several
    looks, it is the probability at the pass rate of both sides together.
    """
    if design.more:
        return _chance(p, design, pooled.passed / pooled.n)
    passed = pooled.passed
    reached = (
        tables.fisher_drop(Counts(before, design.before), Counts(passed - before, design.after))
        for before in range(min(passed, design.before), max(0, passed - design.after) - 1, -1)
    )
    return max(takewhile(lambda own: own <= p, reached), default=0.0)


@lru_cache(maxsize=65536)
def _chance(p: float, design: Design, rate: float) -> float:
    """Return the probability, at a pass rate, that Fisher's p is at most `p` at any look.

    With very many repeats, it is the upper bound p for each look.
    """
    n = design.before + design.after + (2 if design.both else 1) * design.more
    if n > MOST_REPEATS:
        return min(1.0, p * (1 + design.more // (BLOCK if design.both else 1)))
    up, down = 2 * rate, 2 * (1 - rate)  # `_crossings` has a rate of 1/2
    shares = enumerate(_crossings(p, design))
    return sum(share * up**passed * down ** (n - passed) for passed, share in shares if share)


@lru_cache(maxsize=8192)
def worst_chance(p: float, design: Design) -> float:
    """Return the probability, at the worst rate, that Fisher's p is at most `p` at any look."""
    best = max(range(1, _GRID), key=lambda step: _chance(p, design, step / _GRID))
    finer = ((best - 1) / _GRID + step / _GRID**2 for step in range(1, 2 * _GRID))
    return max(_chance(p, design, rate) for rate in finer)


@lru_cache(maxsize=1024)
def _crossings(p: float, design: Design) -> list[float]:
    """Return `crossings` from the beginning, at a pass rate of 1/2."""
    old, new = (tables.even_chances(n) for n in design[:2])
    return crossings(p, design, [[x * y for y in new] for x in old], (0.5, 0.5))


def crossings(
    p: float,
    design: Design,
    shares: Sequence[Sequence[float]],
    rates: tuple[float, float],
    added: int = 0,
) -> list[float]:
    """Return the probability that Fisher's p is at most `p` at any look from now on.

    The result is divided by the passes of both sides at the last look, as if all looks were made.
    `shares` is the probability of each number of passes before (rows) and after (columns), with
    `added` repeats until now. Further repeats pass at these `rates`.
    """
    step = BLOCK if design.both else 1
    old_ways, new_ways = (binomial(step, rate) for rate in rates)
    rows = [list(row) for row in shares]
    found = [0.0] * (len(rows) + len(rows[0]) - 1)
    for more in range(added, design.more + 1, step):
        old_n, new_n = design.before + (more if design.both else 0), design.after + more
        limit = -1
        for old, row in enumerate(rows):
            # More passes before make p smaller, so the limit of passes after only grows.
            before = Counts(old, old_n)
            while limit < new_n and tables.fisher_drop(before, Counts(limit + 1, new_n)) <= p:
                limit += 1
            for new in range(limit + 1):
                found[old + new] += row[new]
                row[new] = 0.0
        if more < design.more:
            rows = [tables.convolved(row, new_ways) for row in rows]
            found = tables.convolved(found, new_ways)
        if more < design.more and design.both:
            columns = [tables.convolved(column, old_ways) for column in zip(*rows, strict=True)]
            rows = [list(row) for row in zip(*columns, strict=True)]
            found = tables.convolved(found, old_ways)
    return found


@lru_cache(maxsize=16384)
def binomial(n: int, rate: float) -> tuple[float, ...]:
    """Return the probability of each number of passes of n."""
    return tuple(comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(n + 1))


def repeats_needed(before: float, after: float, level: float) -> int | None:
    """Return about how many repeats per side show a drop between two pass rates, None without one.

    At a pass rate of 1/2, all n of one side pass and none of the other with a probability of 1/4^n.
    So no outcome is convincing as long as that is above the level.
    """
    if before <= after:
        return None
    mean = (before + after) / 2
    spread = before * (1 - before) + after * (1 - after)
    needed = tables.repeats_needed(before - after, 2 * mean * (1 - mean), spread, level)
    return max(needed, ceil(log(1 / level, 4)))


class Settlement(StrEnum):
    """What repeats have decided about a suspected drop; undecided if more repeats may decide it.

    The first of these that a test or one of its checks has is the settlement of the test.
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
    """Return the settlement of each test, with at most twice `level` of the confirmed ones false.

    Pass all repeated tests of the run, also those without added repeats, since any of them might
    have looked suspicious. `added_before` are the repeats that were added to BEFORE, for each test;
    with `both`, more may be added there. The repeats that were added to AFTER alone confirm a drop
    at `level`, and so do those that were added to both sides.

    BEFORE is too small if no results of repeats that may be added to AFTER would confirm or clear
    the test, within the 95 % interval of its pass rate. A test is exhausted if it may get no more
    repeats.
    """
    added_before = added_before or [()] * len(tests)
    found = confirmed_drops(tests, level)
    if any(added_before):
        paired = list(map(together, tests, added_before))
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
    """Return the looks at which both sides had the same number of added repeats."""
    grown = accumulate(added_before, lambda *both: pooled(both), initial=looks.before)
    old = {counts.n - looks.before.n: counts for counts in grown}
    new = {counts.n - looks.after[0].n: counts for counts in looks.after}
    at = list(takewhile(lambda n: n in old and n in new, range(0, looks.more + 1, BLOCK)))
    return looks._replace(after=tuple(new[n] for n in at), grown=tuple(old[n] for n in at))


def large_drop(before: Counts) -> tuple[float, float]:
    """Return the pass rate of BEFORE and one 30 points below, or half of it if that is higher.

    The pass rate of BEFORE is estimated a little high, as (k + 3/4) / (n + 1): with a low estimate,
    a test that dropped would be cleared too often.
    """
    same = (before.passed + 0.75) / (before.n + 1)
    return same, max(same - _DROP, same / 2)


def _unconfirmed(
    looks: Looks, added_before: Sequence[Counts], confirms: Callable[[Looks], bool], *, both: bool
) -> Settlement:
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
    # The results with all added repeats, at both ends of the 95 % interval of the rate of AFTER.
    most = first.n + looks.more
    worst, best = (
        Counts(last.passed + int(rate * (most - last.n) + 0.5), most)
        for rate in wilson_interval(*last) or (0.0, 1.0)
    )
    if _cleared(looks.before, best) or confirms(looks._replace(after=(first, worst))):
        return Settlement.UNDECIDED
    return Settlement.BEFORE_TOO_SMALL


def _cleared(before: Counts, after: Counts) -> bool:
    """Return whether AFTER, added repeats included, is evidence against a drop of 30 points.

    By A. Wald's sequential ratio ("Sequential Analysis" (1947), chapter 3), the results have to be
    ten times as likely at the pass rate of BEFORE as after a `large_drop`. So at most one of ten
    suspected tests that did drop by 30 points is cleared, however often one looks, if BEFORE has
    three repeats or more. The tests compute this over all outcomes.
    """
    same, dropped = large_drop(before)
    failed = after.n - after.passed
    odds = after.passed * log(same / dropped) + failed * log((1 - same) / (1 - dropped))
    return odds >= log(_CLEARING_ODDS)
