"""The list of baselines as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kindlm.cli.table import aligned
from kindlm.history.baselines import Baseline
from kindlm.reports.untrusted import one_line, printed_json

_HEADER = ("", "SUITE", "LABEL", "RUN", "SET", "BY", "PROJECT")


def baselines_json(baselines: Sequence[Baseline]) -> str:
    """Return the baselines for programs."""
    listed = [
        {
            "project": baseline.project,
            "suite": baseline.suite,
            "label": baseline.label or None,
            "run": baseline.run,
            "setAt": baseline.set_at,
            "setBy": baseline.set_by,
            "active": baseline.active,
            "here": baseline.here,
        }
        for baseline in baselines
    ]
    return printed_json({"schemaVersion": 1, "baselines": listed}, indent=2) + "\n"


def baselines_table(baselines: Sequence[Baseline]) -> str:
    """Return the baselines for people: one line each, an arrow before those that are active."""
    rows = aligned([_HEADER, *(_cells(baseline) for baseline in baselines)])
    return "".join("  ".join(row).rstrip() + "\n" for row in rows)


def _cells(baseline: Baseline) -> tuple[str, ...]:
    when = datetime.fromisoformat(baseline.set_at).astimezone()
    return (
        "→" if baseline.active else "",
        one_line(baseline.suite),
        one_line(baseline.label),
        one_line(baseline.run) + ("" if baseline.here else " (not here)"),
        when.strftime("%Y-%m-%d %H:%M"),
        one_line(baseline.set_by),
        one_line(baseline.project),
    )
