"""The comparison of two runs as a page: one file that needs nothing else, and runs nothing."""

from __future__ import annotations

from typing import TextIO

from kindlm.history.diff.run_diff import RunDiff
from kindlm.reports.pages.diff_page import diff_page
from kindlm.reports.pages.document import render
from kindlm.reports.pages.links import NoLinks
from kindlm.reports.registry import ReportOptions


def write_diff(diff: RunDiff, out: TextIO, options: ReportOptions) -> None:
    """Write the page; it has no options."""
    del options
    out.writelines(render(diff_page(diff), NoLinks()))
