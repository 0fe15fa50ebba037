"""The comparison of two runs as text: a module for each form, and what they share."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from kindlm.history.diff.run_diff import RunDiff
    from kindlm.reports.report_registry import ReportOptions


def write_diff(diff: RunDiff, form: str, out: TextIO, options: ReportOptions) -> None:
    """Write a comparison in a form: terminal, json, markdown or html."""
    import_module(f"kindlm.reports.diff.{form}").write_diff(diff, out, options)
