"""Exact tests of many tests at once, compared with an enumeration of all outcomes."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product
from math import comb, prod

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kindlm.history.statistics.pass_rates import Looks, confirmed_drops
from kindlm.history.statistics.tables import (
    Counts,
    DiscreteP,
    Pair,
    compare_paired,
    discrete_discoveries,
)

LEVEL = 0.03
RATES = [step / 500 for step in range(1, 500)]


@cache
def chances(before: int, after: int, total: int) -> dict[int, Fraction]:
    """Return the probability of each number of passes before, given the passes of both sides."""
    everything = comb(before + after, total)
    return {
        passed: Fraction(comb(before, passed) * comb(after, total - passed), everything)
        for passed in range(max(0, total - after), min(before, total) + 1)
    }


@cache
def fisher(before: Counts, after: Counts) -> float:
    dealt = chances(before.n, after.n, before.passed + after.passed)
    return float(sum(chance for passed, chance in dealt.items() if passed >= before.passed))


@cache
def at_worst(p: float, before: int, after: int) -> float:
    """Return the probability of such a p-value at the worst pass rate."""
    reached = [
        (old, new)
        for old in range(before + 1)
        for new in range(after + 1)
        if fisher(Counts(old, before), Counts(new, after)) <= p + 1e-12
    ]
    n = before + after
    return max(
        sum(
            comb(before, old)
            * comb(after, new)
            * rate ** (old + new)
            * (1 - rate) ** (n - old - new)
            for old, new in reached
        )
        for rate in RATES
    )


def by_chance(p: float, before: Counts, after: Counts) -> float:
    """Return the largest p-value up to p that a test could have, given its passes."""
    total = before.passed + after.passed
    known = (
        fisher(Counts(passed, before.n), Counts(total - passed, after.n))
        for passed in chances(before.n, after.n, total)
    )
    return max((each for each in known if each <= p + 1e-12), default=0.0)


def drops(tests: list[Pair]) -> list[bool]:
    """Return the drops that the docstring of `confirmed_drops` confirms."""
    own = [fisher(*test) for test in tests]
    worst = [at_worst(p, old.n, new.n) for p, (old, new) in zip(own, tests, strict=True)]
    found = [False] * len(tests)
    for limit in sorted(own):
        chosen = [p <= limit + 1e-12 and each <= LEVEL for p, each in zip(own, worst, strict=True)]
        expected = sum(
            min(by_chance(limit, old, new), at_worst(limit, old.n, new.n) if is_chosen else 1.0)
            for is_chosen, (old, new) in zip(chosen, tests, strict=True)
        )
        if expected <= LEVEL * sum(chosen):
            found = chosen
    return found


def made(before: str, after: str, times: int = 1) -> list[Pair]:
    """Return equal tests, each with repeats such as `3/3`."""
    old, new = (Counts(*map(int, side.split("/"))) for side in (before, after))
    return [(old, new)] * times


def drawn(seed: int) -> list[Pair]:
    dice = np.random.default_rng(seed)
    tests: list[Pair] = []
    for _ in range(dice.integers(1, 5)):
        old_n, new_n = (int(n) for n in dice.choice([2, 3, 5, 8], 2))
        old, new = dice.integers(old_n // 2, old_n + 1), dice.integers(new_n // 2 + 1)
        tests += made(f"{old}/{old_n}", f"{new}/{new_n}", int(dice.integers(1, 9)))
    return tests


_FLAKY = [*made("2/4", "2/4", 2), *made("3/4", "1/2")]


@pytest.mark.parametrize(
    "tests",
    [
        pytest.param([*made("3/3", "0/3"), *made("3/3", "1/5"), *_FLAKY], id="a weaker drop"),
        pytest.param([*made("3/3", "1/5", 12), *made("6/8", "2/8")], id="a weak drop"),
        *map(drawn, range(30)),
    ],
)
def test_the_most_drops_are_confirmed_that_chance_allows(tests: list[Pair]) -> None:
    assert confirmed_drops([Looks(old, (new,)) for old, new in tests], LEVEL) == drops(tests)


@cache
def attainable(ways: int) -> tuple[float, ...]:
    return tuple(float(Fraction(step, ways)) for step in range(1, ways + 1))


def discoveries(tests: list[DiscreteP]) -> list[bool]:
    """Return what the formula in the docstring of `discrete_discoveries` rejects."""

    def reached(test: DiscreteP, limit: float) -> float:
        return max((p for p in test.attainable if p <= limit), default=0.0)

    counted = [test for test in tests if len(test.attainable) > 1]
    limits = sorted({p for test in counted for p in test.attainable if p < 1})
    allowed = [
        limit
        for limit in limits
        if all(reached(test, limit) < 1 for test in counted)
        and sum(reached(test, limit) / (1 - reached(test, limit)) for test in counted)
        <= 0.21 * len(counted)
    ]
    bound = -1.0
    for k, p in enumerate(sorted(test.value for test in tests), start=1):
        if allowed and p <= allowed[-1]:
            expected = sum(reached(test, p) / (1 - reached(test, allowed[-1])) for test in counted)
            bound = p if expected <= 0.21 * k else bound
    return [test.value <= bound for test in tests]


_ways = st.sampled_from([1, 5, 20, 40]).flatmap(
    lambda n: st.tuples(st.integers(0, min(n - 1, 9)), st.just(n))
)


@example([(2, 20)])
@example([(2, 20), (0, 1), (0, 1)])
@given(st.lists(_ways, min_size=1, max_size=12))
def test_the_most_scores_are_found_that_chance_allows(cases: list[tuple[int, int]]) -> None:
    tests = [DiscreteP(attainable(n)[place], attainable(n)) for place, n in cases]
    assert discrete_discoveries(tests, 0.21) == discoveries(tests)


_unlike = st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(
    lambda n: st.tuples(*(st.builds(Counts, st.integers(0, of), st.just(of)) for of in n))
)


@given(st.lists(_unlike, min_size=1, max_size=5))
def test_more_repeats_on_a_side_count_all_tables_and_all_signs(pairs: list[Pair]) -> None:
    moves = [Fraction(*old) - Fraction(*new) for old, new in pairs]
    signs = [
        sum((sign * move for sign, move in zip(signs, moves, strict=True)), Fraction(0))
        for signs in product((-1, 1), repeat=len(moves))
    ]
    dealt = [chances(old.n, new.n, old.passed + new.passed) for old, new in pairs]
    tables = [
        (sum(passed), prod(each[x] for each, x in zip(dealt, passed, strict=True)))
        for passed in product(*dealt)
    ]
    observed = sum(old.passed for old, _ in pairs)
    lower = sum(chance for passed, chance in tables if passed >= observed)
    higher = sum(chance for passed, chance in tables if passed <= observed)
    is_unlike = any(old.n != new.n for old, new in pairs)
    found = compare_paired(pairs)
    assert found is not None
    worse = sum(s >= sum(moves) for s in signs) / len(signs)
    better = sum(s <= sum(moves) for s in signs) / len(signs)
    assert found.p_worse == pytest.approx(max(worse, float(lower) if is_unlike else 0.0))
    assert found.p_better == pytest.approx(max(better, float(higher) if is_unlike else 0.0))
