"""Two runs whose tests changed between them as EvalView calls it, compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recorded_history import History, Make

from kindlm.history.diff.run_diff import DiffOptions, RunDiff, compare_runs

_CHANGED: dict[str, dict[str, Any]] = {
    "passed": {},
    "output_changed": {"output": "Something else."},
    "tools_changed": {"tools": (("other", {}, None),)},
    "regression": {"output": "Something else.", "assertions": (Make.failed(),)},
}


def compare_statuses(
    history: History, statuses: Mapping[Any, str], options: DiffOptions | None = None
) -> RunDiff:
    """Compare a run with one in which each test changed so; a regression is one that fails now."""
    names = {str(name): status for name, status in statuses.items()}
    for label in ("before00", "after000"):
        run = history.run(label)
        run.suite(tests=[Make.planned(name) for name in names], defaults={})
        for name, status in names.items():
            done: dict[str, Any] = {"assertions": (Make.passed(),), "tools": (("a", {}, None),)}
            run.execution(name, **(done | (_CHANGED[status] if label == "after000" else {})))
        run.finish()
    return compare_runs(history.reader(), "before00", "after000", options or DiffOptions())
