"""Results that only advise: shown, and counted nowhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from recorded_history import History

from kindlm.history.diff.run_diff import DiffOptions, RunDiff
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports.causes import causes_of

ADVICE = "says goodbye"


@pytest.fixture
def advised(history: History, make: Any) -> RunView:
    """A run in which one execution fails for one reason, and another passes against advice."""
    run = history.run()
    run.suite(tests=[make.planned(repeat=2)])
    advice = make.failed("pii", ADVICE, "PII_DETECTED", advisory=True)
    run.execution(repeat=1, status=Status.PASSED, assertions=(advice, make.passed()))
    run.execution(repeat=2, status=Status.FAILED, assertions=(advice, make.failed()))
    return run.finish()


def test_lists_of_failures_leave_them_out(advised: RunView, write: Any) -> None:
    (test,) = advised.tests()
    assert [cause.kind for cause in causes_of(advised, [test])] == ["contains"]
    for report in ("terminal", "junit", "markdown", "sarif"):
        assert ADVICE not in write(advised, report)


def test_they_are_in_the_report_of_all_there_is(advised: RunView, write: Any) -> None:
    report = json.loads(write(advised, "json"))
    (execution, _) = report["tests"][0]["executions"]
    told = {one["kind"]: (one["outcome"], one["advisory"]) for one in execution["assertions"]}
    assert told == {"pii": ("failed", True), "contains": ("passed", False)}


def test_gates_and_comparisons_do_not_count_them(advised: RunView, history: History) -> None:
    (suite,) = advised.suites
    assert suite.figures.pii_failures == 0
    (test,) = RunDiff(advised, advised, DiffOptions()).tests
    assert test.before is not None
    assert test.before.counts.n == 2
