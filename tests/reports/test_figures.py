"""Numbers as people read them."""

from __future__ import annotations

import pytest

from kindlm.history.verdict import StatusCounts
from kindlm.outcome import GateResult
from kindlm.reports.figures import comparison, duration, money, percent, score_of_limit, tally


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "0 ms"),
        (412.4, "412 ms"),
        (999.6, "1.0 s"),
        (1234, "1.2 s"),
        (59_960, "1 min 00 s"),
        (185_000, "3 min 05 s"),
        (7_380_000, "2 h 03 min"),
    ],
)
def test_durations(ms: float, shown: str) -> None:
    assert duration(ms) == shown


@pytest.mark.parametrize(
    ("usd", "shown"),
    [(0, "$0"), (0.00001, "<$0.0001"), (0.0012, "$0.0012"), (0.5, "$0.50"), (1234.5, "$1,234.50")],
)
def test_money(usd: float, shown: str) -> None:
    assert money(usd) == shown


@pytest.mark.parametrize(
    ("rate", "shown"),
    [
        (0, "0 %"), (0.0001, "<0.1 %"), (0.375, "37.5 %"), (0.5, "50 %"),
        (0.9999, ">99.9 %"), (1, "100 %"),
    ],
)  # fmt: skip
def test_only_all_is_100_percent_and_only_none_is_0(rate: float, shown: str) -> None:
    assert percent(rate) == shown


def gate(name: str, actual: float | None, threshold: float, *, passed: bool) -> GateResult:
    return GateResult(
        name=name, threshold=threshold, actual=actual, passed=passed, written=True, message=""
    )


@pytest.mark.parametrize(
    ("judged", "shown"),
    [
        (gate("judgeAvgMin", 0.71, 0.8, passed=False), "0.71 < 0.80"),
        (gate("passRateMin", 1.0, 0.95, passed=True), "1.00 ≥ 0.95"),
        # Never "0.95 < 0.95".
        (gate("passRateMin", 0.9496, 0.95, passed=False), "0.9496 < 0.95"),
        (gate("latencyMaxMs", 2005.25, 2005, passed=False), "2,005.25 ms > 2,005 ms"),
        (gate("latencyMaxMs", 0.02, 0.001, passed=False), "0.02 ms > 0.001 ms"),
        (gate("costMaxUsd", 1.00001, 1, passed=False), "$1.00001 > $1"),
        (gate("piiFailuresMax", 2, 0, passed=False), "2 > 0"),
        (gate("costMaxUsd", 1.2, 1.0, passed=False), "$1.20 > $1.00"),
        (gate("latencyMaxMs", 1500.0, 2000, passed=True), "1,500 ms ≤ 2,000 ms"),
        (gate("judgeAvgMin", None, 0.8, passed=False), "no value, needs ≥ 0.80"),
        # A mean that misses the threshold by rounding alone passes, and is told so.
        (gate("judgeAvgMin", 0.7999999999999999, 0.8, passed=True), "0.80 ≥ 0.80"),
    ],
)
def test_a_gate_is_compared_with_its_threshold(judged: GateResult, shown: str) -> None:
    assert comparison(judged) == shown


def test_tallies() -> None:
    assert tally(StatusCounts(passed=3, skipped=1)) == "3 passed, 1 skipped"
    assert tally(StatusCounts()) == "none"


@pytest.mark.parametrize(
    ("value", "least", "told"),
    [
        (0.42, 0.7, "0.42, needs 0.70"),
        (0.7, 0.7, "0.70, needs 0.70"),
        (0.7001, 0.7, "0.70, needs 0.70"),
        (0.6996, 0.7, "0.6996, needs 0.7"),
        (0.6999999999, 0.7, "0.6999999999, needs 0.7"),
    ],
)
def test_a_score_that_is_too_low_does_not_look_like_what_it_needs(
    value: float, least: float, told: str
) -> None:
    assert score_of_limit(value, least) == told
