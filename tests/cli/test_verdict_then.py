"""A verdict that today's rules give otherwise than it was told when the run ended, is shown so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kindlm.events.codec import new_event
from kindlm.events.run import GateVerdict, RunFinished
from kindlm.outcome import GateResult
from kindlm_store import Append


@pytest.fixture
def record(history: Any, make: Any) -> Any:
    """Record a run of which 1 of 2 executions passed, and that was told as passed or not."""

    def call(run: str, *, told: bool, gate: bool) -> None:
        writer = history.run(run)
        writer.suite(tests=[make.planned(repeat=2)], gates={"passRateMin": 0.8})
        writer.execution(repeat=1, assertions=(make.passed(),))
        writer.execution(repeat=2, assertions=(make.failed(),))
        writer.leave()
        result = GateResult(
            name="passRateMin",
            threshold=0.8,
            actual=1.0 if gate else 0.5,
            passed=gate,
            written=True,
            message="as told then",
        )
        said = GateVerdict(suite=f"{run}/0", result=result)
        finished = RunFinished(
            passed=told,
            exit_code=0 if told else 1,
            gates=[said],
            tests={},
            executions={},
            duration_ms=1.0,
        )
        history.log.submit(Append(f"run/{run}", (new_event(finished),), seal=True)).result()

    return call


def test_the_verdict_then_is_shown_beside_that_of_now(
    kindlm: Any, history: Any, record: Any
) -> None:
    record("run1", told=True, gate=True)

    shown = " ".join(kindlm("show", "run1", "--db", history.path).out.split())

    assert "FAILED: 1 test failed, gate passRateMin 0.50 < 0.80" in shown
    assert "When the run ended, it was reported as passed." in shown


def test_a_compliance_report_says_what_was_reported(kindlm: Any, history: Any, record: Any) -> None:
    record("run1", told=True, gate=True)

    document = kindlm("report", "run1", "--format", "compliance", "--db", history.path).out

    assert "When the run ended, it was reported as passed." in document


def test_programs_get_both(kindlm: Any, history: Any, record: Any) -> None:
    record("run1", told=True, gate=True)

    report = json.loads(kindlm("report", "run1", "--format", "json", "--db", history.path).out)

    assert (report["run"]["status"], report["run"]["statusThen"]) == ("failed", "passed")
    gates = {gate["name"]: gate for gate in report["gates"]["results"]}
    assert (gates["passRateMin"]["passed"], gates["passRateMin"]["passedThen"]) == (False, True)
    assert gates["piiFailuresMax"]["passedThen"] is None


def test_where_nothing_changed_nothing_is_said(kindlm: Any, history: Any, record: Any) -> None:
    record("run1", told=False, gate=False)

    shown = kindlm("show", "run1", "--db", history.path).out

    assert "When the run ended" not in shown
    assert " then:" not in shown
