"""What is spent, against what may be."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from kindlm.engine.stop import Budget
from kindlm.transcript import Cost, CostSource

USD = st.integers(0, 50).map(lambda cents: cents / 100)


def cost(usd: float) -> Cost:
    return Cost(usd, CostSource.COMPUTED)


@given(st.lists(st.tuples(st.sampled_from([0, 1]), USD)), USD, USD)
def test_a_limit_holds_up_its_own_suite_only(
    spent: list[tuple[int, float]], limit: float, most: float
) -> None:
    told: list[float] = []
    budget = Budget({0: limit}, most, passed=lambda: told.append(budget.total_usd))
    for ordinal, usd in spent:
        budget.spend(ordinal, "m", cost(usd))
    total = sum(usd for _, usd in spent)
    assert math.isclose(budget.total_usd, total, abs_tol=1e-9)
    assert budget.is_used_up is (total > most and not math.isclose(total, most))
    assert bool(told) is any(budget.is_spent(ordinal) for ordinal, _ in spent)
    of_suite = math.fsum(usd for ordinal, usd in spent if ordinal == 0)
    if not math.isclose(of_suite, limit):
        assert (budget.limit_exceeded(0) == limit) is (of_suite > limit)
    assert budget.limit_exceeded(1) is None


def test_to_spend_exactly_what_is_allowed_is_allowed() -> None:
    budget = Budget({0: 0.5}, 0.5)
    budget.spend(0, "m", cost(0.5))
    assert not budget.is_used_up
    assert budget.limit_exceeded(0) is None


def test_what_is_off_by_rounding_alone_is_within_the_limit() -> None:
    budget = Budget({0: 0.6}, 0.6)
    for _ in range(60):
        budget.spend(0, "m", cost(0.01))
    assert not budget.is_spent(0)
    budget.spend(0, "m", cost(0.000_001))
    assert budget.is_used_up
    assert budget.limit_exceeded(0) == 0.6


def test_what_earlier_sessions_spent_counts() -> None:
    budget = Budget({0: 0.5}, 2.0, {0: 0.6, 1: 1.5})
    assert budget.is_used_up
    assert budget.limit_exceeded(0) == 0.5


def test_without_a_limit_nothing_is_used_up() -> None:
    budget = Budget({})
    budget.spend(0, "m", cost(1e9))
    assert not budget.is_used_up
    assert budget.limit_exceeded(0) is None


def test_a_model_without_a_price_is_reported_once_where_there_is_a_limit() -> None:
    told: list[str] = []
    budget = Budget({0: 1.0}, unpriced=told.append)
    for ordinal, model in [(0, "new"), (0, "new"), (1, "other"), (0, "newer")]:
        budget.spend(ordinal, model, Cost())
    assert told == ["new", "newer"]
    assert budget.total_usd == 0
    assert not budget.is_spent(0)


def test_a_call_of_unknown_cost_passes_the_limit_of_the_run_alone() -> None:
    told: list[str | None] = []
    budget = Budget({0: 1.0}, 2.0, passed=lambda: told.append(budget.unknown))
    budget.report_unpriced(0, "new")
    assert not budget.is_used_up
    budget.spend(0, "newer", Cost())
    assert budget.is_used_up
    assert budget.limit_exceeded(0) is None
    assert told == ["newer"]
