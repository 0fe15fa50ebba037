"""The report `compliance`: a document for each suite of a run."""

from __future__ import annotations

from typing import TextIO

from kindlm.errors import KindlmError
from kindlm.history.run_view import RunView
from kindlm.reports.compliance.document import Document, write_document
from kindlm.reports.compliance.facts import read_facts, template_of
from kindlm.reports.registry import ReportOptions


def document_of(view: RunView, suite: str, options: ReportOptions) -> Document:
    """Return the document of one suite of a run, by the suite's id."""
    found = view.suite(suite)
    facts = read_facts(view, found, options.regression_threshold)
    return write_document(facts, template_of(view, found))


class _ComplianceReport:
    name = "compliance"

    def write(self, view: RunView, out: TextIO, options: ReportOptions) -> KindlmError | None:
        """Write the documents one after the other; return what is wrong with the first such."""
        wrong: KindlmError | None = None
        for number, suite in enumerate(view.suites):
            document = document_of(view, suite.id, options)
            out.write("\n" if number else "")
            out.write(document.text)
            wrong = wrong or document.problem
        return wrong


REPORT = _ComplianceReport()
