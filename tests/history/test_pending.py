"""What has not come out yet is pending, never skipped."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from kindlm.errors import Ok
from kindlm.history.trends import read_trend
from kindlm.history.verdict import StatusCounts
from kindlm.plan import QualifiedName
from kindlm.reports.facts import totals_of
from kindlm.reports.report_registry import ReportOptions, find_report
from kindlm_store import StreamLock


@pytest.fixture
def half_way(history: Any, make: Any) -> Any:
    """A run of four executions: one passed, one has begun, two wait; nobody is at it."""
    run = history.run("abc11111", planned=4)
    run.suite(tests=[make.planned(repeat=2), make.planned("refunds"), make.planned("waits")])
    run.execution(assertions=(make.passed(),))
    run.execution("refunds", finished=False)
    return run.leave()


def test_it_is_counted_apart(half_way: Any) -> None:
    summary = half_way.summary
    assert summary.tests == StatusCounts(passed=1, pending=2)
    assert summary.executions == StatusCounts(passed=1, pending=1)
    trend = read_trend(half_way.db, QualifiedName("shop", "support", "refunds", "gpt"), limit=1)
    assert trend.points[0].test.counts == StatusCounts(pending=1)


def test_a_run_that_goes_on_says_what_runs_and_what_waits(half_way: Any, history: Any) -> None:
    with StreamLock(history.path, "run/abc11111"):
        totals = dict(totals_of(history.view("abc11111")))
    assert totals["tests"] == "3: 1 passed, 2 pending"
    assert totals["executions"] == "4: 1 passed, 1 running, 2 pending"


def test_of_a_run_without_a_process_it_was_not_run(half_way: Any) -> None:
    totals = dict(totals_of(half_way))
    assert totals["tests"] == "3: 1 passed, 2 not run"
    assert totals["executions"] == "4: 1 passed, 3 not run"


def test_formats_for_programs_call_it_skipped(half_way: Any) -> None:
    out = io.StringIO()
    found = find_report("json")
    assert isinstance(found, Ok)
    found.value.write(half_way, out, ReportOptions())
    counts = json.loads(out.getvalue())["summary"]["tests"]
    assert counts == {"total": 3, "passed": 1, "failed": 0, "errored": 0, "skipped": 2}
