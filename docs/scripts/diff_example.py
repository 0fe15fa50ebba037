"""Records two runs of an agent and compares them: the worked example of diff.md."""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "shared"))

from recorded_history import History, Make

from kindlm.history.diff.run_diff import DiffOptions, compare_runs
from kindlm.reports.diff.terminal import write_diff
from kindlm.reports.report_registry import ReportOptions

_WHEN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
_COMMIT = re.compile(r" · main@\w+ with changes")


def diff_example() -> str:
    """Return what `kindlm diff k3f9x2ab m7q2w8rt` prints."""
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / "kindlm.db")
        _record(history, "k3f9x2ab", _before())
        _record(history, "m7q2w8rt", _after())
        out = io.StringIO()
        diff = compare_runs(history.reader(), "k3f9x2ab", "m7q2w8rt", DiffOptions())
        write_diff(diff, out, ReportOptions(width=92))
        history.close()
    return _COMMIT.sub("", _WHEN.sub("2026-11-21 09:00 UTC", out.getvalue()))


def _record(history: History, run: str, tests: dict[str, list[dict[str, Any]]]) -> None:
    writer = history.run(run)
    writer.suite(tests=[Make.planned(name, repeat=len(did)) for name, did in tests.items()])
    for name, repeats in tests.items():
        for number, execution in enumerate(repeats, start=1):
            writer.execution(name, repeat=number, **execution)
    writer.finish()


def _before() -> dict[str, list[dict[str, Any]]]:
    return {
        "refund": [_refunds()] * 10,
        "greeting": [_says("Hello! How can I help?")] * 9 + [_fails("Yes?")],
        "opening-hours": [_says("We are open from 9 to 5.")] * 10,
        "track-order": [_tracks("lookup_order")] * 10,
        "cancel-order": [_fails("I cannot do that.")] * 10,
        "invoice": [_says("Here it is.")] * 10,
    }


def _after() -> dict[str, list[dict[str, Any]]]:
    return {
        "refund": [_refunds()] * 2 + [_refunds_at_once()] * 8,
        "greeting": [_says("Hello! How can I help?")] * 7 + [_fails("Yes?")] * 3,
        "opening-hours": [_says("From 9 to 5, every day.")] * 10,
        "track-order": [_tracks("search_orders", "lookup_order")] * 10,
        "cancel-order": [_says("It is cancelled.")] * 10,
        "complaint": [_says("I am sorry to hear that.")] * 10,
    }


def _says(text: str) -> dict[str, Any]:
    return {"output": text, "assertions": (Make.passed("contains", "an answer"),)}


def _fails(text: str) -> dict[str, Any]:
    failed = Make.failed("contains", "an answer", message="Expected an answer.")
    return {"output": text, "assertions": (failed,)}


def _tracks(*tools: str) -> dict[str, Any]:
    calls = tuple((tool, {"order_id": "A-17"}, {"status": "shipped"}) for tool in tools)
    return _says("It is on its way.") | {"tools": calls}


def _refunds() -> dict[str, Any]:
    return {
        "tools": (
            ("lookup_order", {"order_id": "A-17"}, {"total": 49.99}),
            ("issue_refund", {"order_id": "A-17", "amount": 49.99}, {"ok": True}),
        ),
        "output": "I have refunded $49.99 for your order A-17.",
        "assertions": (Make.passed("tool_called", "lookup_order"),),
    }


def _refunds_at_once() -> dict[str, Any]:
    missing = Make.failed(
        "tool_called",
        "lookup_order",
        "TOOL_CALL_MISSING",
        "Expected a call to lookup_order; the agent called only issue_refund.",
    )
    return {
        "tools": (("issue_refund", {"order_id": "A-17", "amount": 60}, {"ok": True}),),
        "output": "I have refunded $60 for your order A-17.",
        "assertions": (missing,),
    }
