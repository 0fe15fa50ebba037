"""What a comparison can show: the chance that is computed is that of the real comparison."""

from __future__ import annotations

from itertools import product

import pytest

from kindlm.history.diff.evidence import judge_pair
from kindlm.history.diff.evidence_values import Side, Strength, TestPair
from kindlm.history.diff.power import comparison_power, power
from kindlm.history.statistics.pass_rates import Design, Looks, binomial, kinds_of
from kindlm.history.statistics.tables import Counts
from kindlm.outcome import Status
from kindlm.reports.figures import power_text

_LEVEL = 0.025
"""That of the pass rates of all tests together."""


def _side(passed: int, n: int) -> Side:
    return Side(Counts(passed, n), Status.PASSED if passed == n else Status.FAILED)


def _pair(before: int, after: int, n_before: int, n_after: int) -> TestPair:
    return TestPair(
        _side(before, n_before),
        _side(after, n_after),
    )


def _confirmed(
    repeats: tuple[int, int], rates: tuple[float, float], others: list[TestPair]
) -> float:
    """How often the comparison confirms a drop of one test beside others that stay as they are.

    Computed over all outcomes of the test.
    """
    before, after = (binomial(n, rate) for n, rate in zip(repeats, rates, strict=True))
    found = 0.0
    for (old, x), (new, y) in product(enumerate(before), enumerate(after)):
        if x * y and old * repeats[1] > new * repeats[0]:
            tests = dict(enumerate([_pair(old, new, *repeats), *others]))
            test = judge_pair(tests).tests[0]
            if test.change == "regressed" and test.strength is Strength.CONFIRMED:
                found += x * y
    return found


@pytest.mark.parametrize(
    ("repeats", "rates"),
    [
        ((3, 3), (1.0, 0.1)),
        ((5, 5), (1.0, 0.3)),
        ((10, 10), (1.0, 0.7)),
        ((10, 10), (0.9, 0.5)),
        ((10, 3), (1.0, 0.4)),
        ((20, 20), (0.9, 0.6)),
    ],
)
def test_the_power_is_how_often_the_comparison_confirms(
    repeats: tuple[int, int], rates: tuple[float, float]
) -> None:
    stable = [_pair(*repeats, *repeats)] * 19
    known = [Looks(Counts(n, n), (Counts(m, m),)) for n, m in [repeats] * 19]
    expected = power(Design(*repeats, 0), *rates, _LEVEL, kinds_of(known))
    assert 0.02 < expected < 0.98
    assert _confirmed(repeats, rates, stable) == pytest.approx(expected, abs=0.001)


def test_flaky_tests_beside_it_are_counted_in() -> None:
    repeats, rates = (20, 20), (1.0, 0.7)
    flaky = [_pair(17, 17, *repeats)] * 30
    known = [Looks(Counts(17, 20), (Counts(17, 20),))] * 30
    alone = power(Design(*repeats, 0), *rates, _LEVEL)
    beside = power(Design(*repeats, 0), *rates, _LEVEL, kinds_of(known))
    assert beside < alone - 0.2
    assert _confirmed(repeats, rates, flaky) == pytest.approx(beside, abs=0.001)


def test_the_power_of_repeats_that_are_added_is_that_of_all_looks() -> None:
    one, more = (power(Design(10, 10, n), 1.0, 0.6, 0.005) for n in (0, 50))
    assert 0.1 < one < 0.4
    assert more > 2 * one


@pytest.mark.parametrize(
    ("repeats", "sentence"),
    [
        (
            (1, 1),
            (
                "With 1 repeat in each run, kindlm cannot tell a regression from bad luck. Use"
                " 10 repeats to tell them apart."
            ),
        ),
        (
            (3, 3),
            (
                "With 3 repeats in each run, kindlm confirms a drop from 100 % to 0 %, and one to"
                " 70 % in 2 of 100 comparisons. Use 10 repeats to find drops more often."
            ),
        ),
        (
            (10, 3),
            (
                "With 10 repeats before and 3 after, kindlm confirms a drop from 100 % to 0 %, and"
                " one to 70 % in 21 of 100 comparisons. Use 10 repeats to find drops more"
                " often."
            ),
        ),
        (
            (30, 30),
            (
                "With 30 repeats in each run, kindlm confirms a drop from 100 % to 0 %, and one to"
                " 70 % in 96 of 100 comparisons."
            ),
        ),
    ],
)
def test_one_sentence_says_it(repeats: tuple[int, int], sentence: str) -> None:
    shown = comparison_power([(Counts(n, n), m) for n, m in [repeats] * 12])
    assert shown is not None
    assert power_text(shown) == sentence


def test_it_speaks_of_the_repeats_that_most_tests_have() -> None:
    pairs = [(Counts(5, 5), 5)] * 3 + [(Counts(1, 1), 1)]
    shown = comparison_power(pairs)
    assert shown is not None
    assert (shown.before, shown.after) == (5, 5)


def test_nothing_compared_shows_nothing() -> None:
    assert comparison_power([]) is None
    assert comparison_power([(Counts(0, 0), 3)]) is None


def test_tests_with_very_many_repeats_do_not_count() -> None:
    usual = (Counts(3, 3), 3)
    assert comparison_power([usual, (Counts(2_000, 2_000), 2_000)]) == comparison_power([usual])
    assert comparison_power([(Counts(2_000, 2_000), 2_000)]) is None
