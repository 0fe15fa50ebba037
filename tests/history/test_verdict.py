"""What results mean: tests over repeats, gates, suites."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.history.queries import Paid
from kindlm.history.rows import SuiteView, TestView
from kindlm.history.verdict import Figures, StatusCounts, evaluate_gate
from kindlm.history.verdict import test_status as status_of
from kindlm.outcome import Gate, Status

counts = st.builds(StatusCounts, *[st.integers(0, 20)] * 4)


@pytest.mark.parametrize(
    ("counted", "rate", "status"),
    [
        (StatusCounts(passed=3), 1.0, Status.PASSED),
        (StatusCounts(passed=2, failed=1), 1.0, Status.FAILED),
        (StatusCounts(passed=2, failed=1), 2 / 3, Status.PASSED),
        (StatusCounts(passed=4, failed=1), 0.8, Status.PASSED),
        (StatusCounts(passed=4, errored=1), 0.8, Status.ERRORED),
        (StatusCounts(passed=4, failed=1, errored=1), 0.5, Status.FAILED),
        (StatusCounts(failed=1, errored=1), 1.0, Status.FAILED),
        (StatusCounts(passed=1, skipped=5), 1.0, Status.PASSED),
        (StatusCounts(skipped=2), 1.0, Status.SKIPPED),
        (StatusCounts(), 1.0, Status.SKIPPED),
        (StatusCounts(failed=3), 0.0, Status.PASSED),
    ],
)
def test_a_test_over_its_repeats(counted: StatusCounts, rate: float, status: Status) -> None:
    assert status_of(counted, rate) is status


@given(counts, st.floats(0, 1))
def test_a_passed_test_has_no_error_and_enough_passes(counted: StatusCounts, rate: float) -> None:
    if status_of(counted, rate) is Status.PASSED:
        assert counted.errored == 0
        assert counted.pass_rate is not None
        assert counted.pass_rate >= rate - 1e-6


@pytest.mark.parametrize(
    ("counted", "passed_later", "flaky"),
    [
        (StatusCounts(passed=1, failed=1), 0, True),
        (StatusCounts(passed=1), 1, True),
        (StatusCounts(passed=1, errored=1), 0, False),
        (StatusCounts(failed=2), 0, False),
    ],
)
def test_flaky_is_passed_and_failed(counted: StatusCounts, passed_later: int, flaky: bool) -> None:
    values = dict.fromkeys((field.name for field in fields(TestView)), None)
    test = TestView(**{**values, "counts": counted, "passed_later": passed_later})
    assert test.flaky is flaky


def judged(gate: Gate, metrics: Figures) -> tuple[bool, float | None, bool]:
    result = evaluate_gate(gate, metrics)
    return result.passed, result.actual, result.warning


RAN = StatusCounts(passed=9, failed=1)


@pytest.mark.parametrize(
    ("name", "metrics", "threshold", "passed"),
    [
        ("passRateMin", Figures(RAN), 0.9, True),
        ("passRateMin", Figures(RAN), 0.91, False),
        ("passRateMin", Figures(StatusCounts(passed=9, skipped=9)), 1.0, True),
        ("schemaFailuresMax", Figures(RAN, schema_failures=1), 0, False),
        ("piiFailuresMax", Figures(RAN, pii_failures=2), 2, True),
        ("keywordFailuresMax", Figures(RAN), 0, True),
        ("judgeAvgMin", Figures(RAN, judge_average=0.8), 0.8, True),
        # The mean of 0.7, 0.8 and 0.9 is a hair below 0.8 in floating point.
        ("judgeAvgMin", Figures(RAN, judge_average=0.7999999999999999), 0.8, True),
        ("judgeAvgMin", Figures(RAN, judge_average=0.79), 0.8, False),
        ("driftScoreMax", Figures(RAN, drift_maximum=0.3), 0.2, False),
        ("costMaxUsd", Figures(RAN, paid=Paid(0.07)), 0.05, False),
        ("costMaxUsd", Figures(RAN, paid=Paid(0.05)), 0.05, True),
        ("costMaxUsd", Figures(RAN, paid=Paid(5e-10)), 0, False),
        ("latencyMaxMs", Figures(RAN, latency_average_ms=500.0), 500, True),
    ],
)
def test_a_gate_with_a_value(name: str, metrics: Figures, threshold: float, passed: bool) -> None:
    assert judged(Gate(name, threshold, written=True), metrics)[0] is passed


@pytest.mark.parametrize("name", ["judgeAvgMin", "driftScoreMax", "latencyMaxMs", "costMaxUsd"])
def test_a_gate_without_a_value(name: str) -> None:
    written, default = Gate(name, 0.5, written=True), Gate(name, 0.5, written=False)
    nothing = Figures(RAN)

    assert judged(written, nothing) == (False, None, False)
    assert judged(default, nothing) == (True, None, True)
    assert judged(written, Figures(RAN, narrowed=True)) == (True, None, True)


@pytest.mark.parametrize("written", [True, False])
def test_a_gate_of_a_newer_version_never_passes(written: bool) -> None:
    for figures in (Figures(RAN), Figures(RAN, narrowed=True)):
        result = evaluate_gate(Gate("turnsMax", 3, written), figures)
        assert (result.passed, result.actual, result.warning) == (False, None, False)
        assert result.message == "this version of kindlm does not know the gate"


def test_a_missing_baseline_excuses_the_drift_gate_alone() -> None:
    no_baseline = Figures(RAN, drift_skipped=2)

    drift = evaluate_gate(Gate("driftScoreMax", 0.2, written=True), no_baseline)
    assert drift.passed
    assert drift.warning
    assert "kindlm baseline set" in drift.message
    assert not judged(Gate("judgeAvgMin", 0.5, written=True), no_baseline)[0]


def test_an_unknown_cost_does_not_pass_as_nothing() -> None:
    gate = Gate("costMaxUsd", 1.0, written=True)
    partly = Figures(RAN, paid=Paid(0.2, unknown=3))

    assert judged(gate, partly) == (False, None, False)
    assert judged(gate, Figures(RAN, paid=Paid(1.2, unknown=3))) == (False, 1.2, False)


def test_a_suite_fails_by_a_failed_test_unless_a_written_rate_decides() -> None:
    def passes(tests: StatusCounts, *gates: Gate, executions: StatusCounts = RAN) -> bool:
        values = dict.fromkeys((field.name for field in fields(SuiteView)), None)
        results = tuple(evaluate_gate(gate, Figures(RAN)) for gate in gates)
        judged = {"tests": tests, "executions": executions, "gates": results}
        return SuiteView(**{**values, **judged}).passed

    written, default = Gate("passRateMin", 0.9, written=True), Gate("passRateMin", 0.9, False)
    failed, errored = StatusCounts(passed=9, failed=1), StatusCounts(passed=90, errored=1)
    assert passes(StatusCounts(passed=10), default)
    assert not passes(failed, default)
    assert passes(failed, written)
    assert not passes(errored, written, executions=errored)
    assert not passes(failed, written, executions=errored)
    assert not passes(failed, written, Gate("judgeAvgMin", 0.5, written=True))
