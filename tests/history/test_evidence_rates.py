"""How often the evidence is wrong, and how often it sees what is there: simulated runs.

The dice are seeded, so that the tests always see the same runs.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from false_alarms import AGENTS, DEPENDENCES, Dependence, Drop, share_found, share_of_failures
from numpy.typing import NDArray

from kindlm.history.diff.evidence import judge_pair, settle
from kindlm.history.diff.evidence_values import RunEvidence, Side, Strength, TestPair, Verdict
from kindlm.history.statistics.pass_rates import Looks, Settlement, pass_rate_drop
from kindlm.history.statistics.tables import Counts, fisher_drop
from kindlm.outcome import Status

_FLAKY = np.linspace(0.3, 1.0, 20)
"""The pass rates of 20 tests of a flaky agent."""

Rates = NDArray[np.float64]


def _side(passed: int, n: int) -> Side:
    return Side(Counts(passed, n), Status.PASSED if passed == n else Status.FAILED)


@cache
def _pair(before: int, after: int, n_before: int, n_after: int) -> TestPair:
    return TestPair(
        _side(before, n_before),
        _side(after, n_after),
    )


def _runs(
    dice: np.random.Generator, before: Rates, after: Rates, repeats: tuple[int, int]
) -> dict[int, TestPair]:
    old, new = dice.binomial(repeats[0], before), dice.binomial(repeats[1], after)
    return {i: _pair(int(old[i]), int(new[i]), *repeats) for i in range(len(before))}


def _confirmed(found: RunEvidence[int]) -> set[int]:
    return {
        key
        for key, test in found.tests.items()
        if test.change == "regressed" and test.strength is Strength.CONFIRMED
    }


@pytest.mark.parametrize("repeats", [(3, 3), (10, 10), (3, 10)])
def test_the_same_flaky_agent_is_rarely_called_a_regression(repeats: tuple[int, int]) -> None:
    dice = np.random.default_rng(1)
    pairs = 40
    found = [judge_pair(_runs(dice, _FLAKY, _FLAKY, repeats)) for _ in range(pairs)]
    assert sum(bool(_confirmed(run)) for run in found) / pairs <= 0.03
    assert sum(run.fails for run in found) / pairs <= 0.05
    assert all(run.fails == (run.verdict is Verdict.REGRESSED) for run in found)


@pytest.mark.parametrize("rate", [0.5, 0.95])
@pytest.mark.parametrize("flaky", [1, 20])
def test_it_does_not_matter_how_many_tests_are_how_flaky(rate: float, flaky: int) -> None:
    dice = np.random.default_rng(2)
    rates = np.array([rate] * flaky + [1.0] * (20 - flaky))
    for n in (3, 10):
        found = [judge_pair(_runs(dice, rates, rates, (n, n))) for _ in range(200)]
        assert sum(run.fails for run in found) / 200 <= 0.05


# Each number of repeats and each dependence once: docs/explanation/statistics.md has all of them.
@pytest.mark.parametrize(
    ("repeats", "dependence"), list(zip((3, 5, 10, 20), DEPENDENCES, strict=True))
)
def test_many_checks_of_the_same_agent_are_rarely_called_a_regression(
    repeats: int, dependence: Dependence
) -> None:
    # docs/explanation/statistics.md has the shares of 1,000 pairs of runs: at most 4 of 100.
    found = [share_of_failures(rates, repeats, dependence, runs=8) for rates in AGENTS.values()]
    assert max(found) <= 0.125
    assert sum(found) / len(found) <= 0.05


def test_a_check_that_drops_is_found_whether_its_test_failed_before_or_not() -> None:
    for failed in (True, False):
        assert share_found(Drop(1.0, 0.0, test_failed=failed), repeats=5, runs=40) > 0.9
        assert share_found(Drop(1.0, 0.5, test_failed=failed), repeats=20, runs=40) > 0.8


@pytest.mark.parametrize("before", [_FLAKY, np.full(20, 1.0)])
def test_a_drop_of_all_tests_is_found(before: Rates) -> None:
    dice = np.random.default_rng(3)
    after = np.clip(before - 0.3, 0, 1)
    found = [judge_pair(_runs(dice, before, after, (10, 10))) for _ in range(100)]
    assert sum(run.fails for run in found) / 100 > 0.9
    assert sum(run.verdict is Verdict.REGRESSED for run in found) / 100 > 0.9


def test_one_test_of_twenty_that_drops_by_half_is_found_with_ten_repeats() -> None:
    dice = np.random.default_rng(4)
    before = np.ones(20)
    after = np.array([0.5, *before[1:]])
    found = [judge_pair(_runs(dice, before, after, (10, 10))) for _ in range(100)]
    assert sum(0 in _confirmed(run) for run in found) / 100 > 0.7


def test_waiting_for_the_best_moment_does_not_help() -> None:
    rate = 0.8
    dice = np.random.default_rng(5)
    before, level = 5, 0.05
    runs, best = [], []
    for _ in range(400):
        old = Counts(int(dice.binomial(before, rate)), before)
        passed = np.cumsum(dice.random(before + 50) < rate)
        looks = tuple(Counts(int(passed[n - 1]), n) for n in range(before, before + 51))
        smallest = min(looks, key=lambda look: fisher_drop(old, look))
        best.append(Looks(old, (smallest,)))
        runs.append(Looks(old, (looks[0], smallest), more=50))
    # The p-value grows with the smallest of Fisher's: only a few have to be computed.
    runs.sort(key=lambda looks: looks.smallest_p)
    assert bisect_right(runs, level, key=pass_rate_drop) / 400 <= level
    assert sum(pass_rate_drop(looks) <= level for looks in best) / 400 > level


class Settled(NamedTuple):
    confirmed: set[int]
    calls: int


def _settle(dice: np.random.Generator, before: Rates, after: Rates, n: int) -> Settled:
    """Add five repeats at a time to each undecided test, as long as there is one."""
    tests = _runs(dice, before, after, (n, n))
    sure = _confirmed(judge_pair(tests))
    calls = 0
    while True:
        known = settle(tests)
        open_tests = [key for key, found in known.items() if found is Settlement.UNDECIDED]
        open_tests = [key for key in open_tests if key not in sure]
        if not open_tests:
            return Settled(_confirmed(judge_pair(tests)), calls)
        for key in open_tests:
            batch = Counts(int(dice.binomial(5, after[key])), 5)
            pair = tests[key]
            tests[key] = TestPair(pair.before, pair.after, (*pair.added, batch))
            calls += 5


def test_settling_keeps_the_error_rate_of_the_whole() -> None:
    dice = np.random.default_rng(6)
    found = [_settle(dice, _FLAKY, _FLAKY, n) for n in (3, 5) for _ in range(5)]
    assert not any(run.confirmed for run in found)


def test_settling_needs_far_fewer_repeats_than_a_new_run() -> None:
    dice = np.random.default_rng(7)
    before = np.ones(20)
    after = np.array([0.3, *before[1:]])
    first = [judge_pair(_runs(dice, before, after, (5, 5))) for _ in range(30)]
    found = [_settle(dice, before, after, 5) for _ in range(30)]
    assert sum(0 in _confirmed(run) for run in first) / 30 < 0.6
    assert sum(0 in run.confirmed for run in found) / 30 > 0.7
    # Five more repeats of all tests would be 100.
    assert sum(run.calls for run in found) / 30 < 15


def test_the_same_counts_give_the_same_evidence() -> None:
    tests = _runs(np.random.default_rng(8), _FLAKY, _FLAKY - 0.2, (5, 7))
    assert repr(judge_pair(tests)) == repr(judge_pair(dict(tests)))
