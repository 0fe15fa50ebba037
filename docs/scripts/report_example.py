"""Records two runs of a small suite and reports the second: the examples of reports.md."""

from __future__ import annotations

import io
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "shared"))

from recorded_history import History, Make, RunWriter

from kindlm.errors import Ok
from kindlm.history.run_view import RunView
from kindlm.reports.github_annotations import annotations_of, as_command
from kindlm.reports.report_registry import ReportOptions, find_report

_REPLACED = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"), "2026-11-21 09:00 UTC"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"), "2026-11-21T09:00:00"),
    (re.compile(r" · main@\w+ with changes"), ""),
)


def report_example(name: str) -> str:
    """Return what `kindlm report k3f9x2ab --format NAME` prints."""
    report = find_report(name)
    assert isinstance(report, Ok)
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / "kindlm.db")
        out = io.StringIO()
        report.value.write(_recorded(history), out, ReportOptions(width=92))
        history.close()
    text = out.getvalue()
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    return text


def sarif_example() -> str:
    """Return the first result of the SARIF report, indented."""
    (run,) = json.loads(report_example("sarif"))["runs"]
    return json.dumps(run["results"][0], indent=2) + "\n"


def summary_example() -> str:
    """Return the summary of the JSON report, a line for each of its keys."""
    summary = json.loads(report_example("json"))["summary"]
    lines = (f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in summary.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def annotations_example() -> str:
    """Return the annotations that `kindlm test` prints of the run."""
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / "kindlm.db")
        found = annotations_of(_recorded(history))
        history.close()
    return "".join(f"{as_command(annotation)}\n" for annotation in found)


def _recorded(history: History) -> RunView:
    _record(history, "h7c2m5qd", refunds=_fine("refund_order"))
    return _record(history, "k3f9x2ab", refunds=_leaks())


def _record(history: History, run: str, refunds: dict[str, Any]) -> RunView:
    writer: RunWriter = history.run(run)
    writer.suite("orders", tests=[Make.planned("greets"), Make.planned("refunds", repeat=3)])
    writer.execution("greets", assertions=(Make.passed(),))
    for repeat in (1, 2, 3):
        writer.execution("refunds", repeat=repeat, **refunds)
    return writer.finish()


def _fine(tool: str) -> dict[str, Any]:
    return {
        "output": "Your refund is on its way.",
        "tools": ((tool, {"order_id": "A-17"}, {"ok": True}),),
        "assertions": (Make.passed("tool_called", tool), Make.passed("pii", "pii")),
    }


def _leaks() -> dict[str, Any]:
    match = {"source": "output", "start": 26, "end": 46, "name": "email"}
    leak = Make.failed(
        "pii",
        "pii",
        "PII_DETECTED",
        "Personal data, 1 match: email ja****************om (output).",
        evidence=[{**match, "excerpt": "ja****************om"}],
        line=31,
    )
    return _fine("refund_order") | {
        "output": "Your refund was mailed to jane.roe@example.com.",
        "assertions": (Make.passed("tool_called", "refund_order"), leak),
    }
