"""Checks of time and money."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kindlm.outcome import CheckResult, Outcome
from kindlm.transcript import Cost, CostSource, Step, Transcript, Turn, Usage

Evaluate = Callable[..., CheckResult]


def took(*latencies_ms: float) -> Transcript:
    steps = tuple(Step("x", latency_ms=latency_ms) for latency_ms in latencies_ms)
    return Transcript(turns=(Turn("a", steps[:1]), Turn("b", steps[1:])))


def spent(*usd: float | None) -> Transcript:
    source = CostSource.COMPUTED
    costs = [Cost() if amount is None else Cost(amount, source) for amount in usd]
    return Transcript(turns=(Turn("a", tuple(Step("x", cost=cost) for cost in costs)),))


@pytest.mark.parametrize(
    ("latencies_ms", "outcome"),
    [
        ((400, 600), Outcome.PASSED),
        ((0,), Outcome.PASSED),
        ((400, 600.5), Outcome.FAILED),
        ((), Outcome.INCONCLUSIVE),
    ],
)
def test_latency_is_that_of_all_answers(
    evaluate: Evaluate, latencies_ms: tuple[float, ...], outcome: Outcome
) -> None:
    result = evaluate("latency", {"maxMs": 1000}, took(*latencies_ms))

    assert result.outcome is outcome
    assert result.threshold == 1000
    if outcome is Outcome.FAILED:
        assert result.failure_code == "LATENCY_EXCEEDED"
        assert (result.expected, result.actual) == (1000, 1000.5)
        assert "1,000.5 ms" in result.message
    if outcome is Outcome.INCONCLUSIVE:
        assert result.score is None


@pytest.mark.parametrize(
    ("usd", "outcome"),
    [
        ((0.1, 0.2), Outcome.PASSED),
        ((0.0,), Outcome.PASSED),
        ((0.1, 0.2, 1e-9), Outcome.FAILED),
        ((0.1, None), Outcome.INCONCLUSIVE),
        ((0.5, None), Outcome.INCONCLUSIVE),
        ((), Outcome.INCONCLUSIVE),
    ],
)
def test_an_unknown_cost_is_never_free(
    evaluate: Evaluate, usd: tuple[float | None, ...], outcome: Outcome
) -> None:
    result = evaluate("cost", {"maxUsd": 0.3}, spent(*usd))

    assert result.outcome is outcome
    if outcome is Outcome.FAILED:
        assert result.failure_code == "BUDGET_EXCEEDED"
        assert result.expected == 0.3
        assert "$0.300000001" in result.message
    if outcome is Outcome.INCONCLUSIVE:
        assert result.score is None


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((), "the target gave no answer"),
        (
            (Step("x", usage=Usage(1, 2), model="m-1"),),
            '"m-1" has no price. Add it to `prices`',
        ),
        (
            (Step("x", usage=Usage(None, 42), model="m-1"),),
            '"m-1" did not report the tokens it read and wrote',
        ),
        ((Step("x"),), "the target did not report the tokens"),
    ],
)
def test_why_a_cost_is_not_known(evaluate: Evaluate, steps: tuple[Step, ...], why: str) -> None:
    result = evaluate("cost", {"maxUsd": 1}, Transcript(turns=(Turn("a", steps),)))

    assert why in result.message
