"""The report `html`: a run as one file that needs no server, for a CI artifact or a mail."""

from __future__ import annotations

from typing import TextIO

from kindlm.history.run_view import RunView
from kindlm.reports.pages.document import render
from kindlm.reports.pages.report_page import report_page
from kindlm.reports.registry import ReportOptions


class _HtmlReport:
    name = "html"

    def write(self, view: RunView, out: TextIO, options: ReportOptions) -> None:
        """Write the report; it has no options."""
        del options
        out.writelines(render(*report_page(view)))


REPORT = _HtmlReport()
