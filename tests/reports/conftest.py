"""Runs for reports to write, and writing them."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from kindlm.errors import Ok
from kindlm.history.run_view import RunView
from kindlm.reports.report_registry import ReportOptions, find_report

Write = Callable[..., str]


@pytest.fixture
def write() -> Write:
    """Write a report of a run; further arguments are its options."""

    def written(view: RunView, name: str, **options: Any) -> str:
        found = find_report(name)
        assert isinstance(found, Ok)
        out = io.StringIO()
        found.value.write(view, out, ReportOptions(**options))
        return out.getvalue()

    return written


@pytest.fixture
def varied(history: Any, make: Any) -> RunView:
    """A run with a bit of everything: two suites and one that is broken, two targets, repeats."""
    run = history.run(label="nightly", ci="github-actions")
    run.suite(
        "support",
        tests=[
            make.planned("greets", "gpt", repeat=2, tags=["smoke"]),
            make.planned("greets", "claude", repeat=2, tags=["smoke"]),
            make.planned("refunds", "gpt", repeat=3),
            make.planned("refunds", "claude"),
            make.planned("later", "gpt", skip=True),
        ],
        gates={"judgeAvgMin": 0.8, "costMaxUsd": 1.0},
    )
    run.skipped_suite("broken", tests=3)
    for repeat in (1, 2):
        run.execution("greets", "gpt", repeat=repeat, assertions=(make.passed(),))
        run.execution(
            "greets",
            "claude",
            repeat=repeat,
            judge="0.71",
            assertions=(
                make.passed("judge", "is kind", score=0.71, threshold=0.5),
                make.passed() if repeat == 1 else make.failed(actual="Good day", expected="hi"),
            ),
        )
    missing = make.failed(
        "tool_called",
        "refund_order",
        "TOOL_CALL_MISSING",
        "Expected a call to refund_order; the agent called only lookup_order.",
        expected={"tool": "refund_order"},
        actual=["lookup_order"],
        line=57,
    )
    for repeat in (1, 2, 3):
        run.execution(
            "refunds",
            "gpt",
            repeat=repeat,
            output="I can't do that.",
            assertions=(missing,),
            tools=(("lookup_order", {"order_id": "A1"}, {"status": "delivered"}),),
            cost_usd=None,
        )
    run.execution(
        "refunds",
        "claude",
        output=None,
        failures=(make.provider_failed(), make.provider_failed(retry_in_ms=None)),
        error=(
            "PROVIDER_RATE_LIMIT",
            202,
            "The provider refused: too many requests.",
            "Lower defaults.concurrency.",
        ),
    )
    run.execution("later", "gpt", status=make.SKIPPED)
    return run.finish()
