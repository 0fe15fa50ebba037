"""The report `compliance`: a document for each suite of a run, and the hash of each."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any, TextIO

from kindlm.dataclass import dataclass, replace
from kindlm.errors import DOCS, ErrorCode, KindlmError, broken
from kindlm.history.rows import SuiteView
from kindlm.history.run_view import RunView
from kindlm.reports.compliance.compliance_facts import read_facts, template_of
from kindlm.reports.compliance.rendering import TemplateFailedError, render, render_apart
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import code, plain

SEPARATOR = "---\n"
"""The line below all that the hash covers."""

_BLANKS = re.compile(r"\n{3,}")


@dataclass(frozen=True, slots=True)
class Document:
    """The document of a suite.

    `problem` is that its template failed, or that what it was read from is not as it was recorded.
    """

    text: str
    problem: KindlmError | None = None


def write_document(
    facts: Mapping[str, Any], template: tuple[str, str] | None, above: str = ""
) -> Document:
    """Return the document of a suite: Markdown, a separator, and the SHA-256 of what is above it.

    `above` are the documents that come before it in the same file.

    A template of the user, its file and its text, has little time and memory, and reaches nothing
    but the facts. One that fails says so in the document's place, so that a run is never lost for
    its report. Where what the facts were read from is not as it was recorded, the document begins
    with that, whatever the template says.
    """
    if template is None:
        own = files("kindlm.reports.compliance").joinpath("templates/report.md").read_text("utf-8")
        return _sealed(render(own, facts), facts, above)
    file, source = template
    try:
        return _sealed(render_apart(source, facts), facts, above)
    except TemplateFailedError as error:
        told = f"Its template {code(file)} failed: {plain(str(error))}."
        problem = KindlmError(
            ErrorCode.CONFIG_VALIDATION_ERROR,
            f"The template {file} of the compliance report failed: {error}.",
            "The run is recorded, with this template. Fix it, and run the tests again."
            f" What a template may hold: {DOCS}/how-to/compliance/",
        )
        text = f"# The report could not be written\n\n{told}\n"
        return replace(_sealed(text, facts, above), problem=problem)


def _sealed(text: str, facts: Mapping[str, Any], above: str) -> Document:
    """Return a text with the hash of it, which anybody can compute who has the file."""
    events = [
        f"run {stream['run']}: {problem}"
        for stream in facts.get("audit", ())
        for problem in stream["problems"]
    ]
    wrong = [*events, *facts.get("changed_tables", ())]
    warning, changed = "", None
    if wrong:
        told = "".join(f"- {plain(sentence, len(sentence))}\n" for sentence in wrong)
        way_out = "Restore it from a backup" if events else "Run `kindlm history rebuild`"
        warning = (
            "**NOT AS RECORDED.** The history that this document was read from was changed: it is"
            f" no evidence. {way_out}. Then make the document again.\n\n{told}\n"
        )
        changed = broken(
            "The compliance report is no evidence: the history that it was read from was changed.",
            f"{way_out}. See what was changed: kindlm history verify",
        )
    content = _BLANKS.sub("\n\n", warning + text).strip() + "\n\n"
    digest = hashlib.sha256((above + content).encode("utf-8", "backslashreplace")).hexdigest()
    origin = (
        "Made from a history that is NOT as it was recorded."
        if wrong
        else "Made from recorded events alone: the same history gives the same document."
    )
    end = f"{SEPARATOR}\nSHA-256 of all above the line: `{digest}`\n\n{origin}\n"
    return Document(content + end, changed)


def document_of(view: RunView, suite: str, options: ReportOptions, above: str = "") -> Document:
    """Return the document of one suite of a run, by the suite's id."""
    found = view.suite(suite)
    facts = read_facts(view, found, options.regression_threshold)
    return write_document(facts, template_of(view, found), above)


def documents_of(view: RunView, suites: Iterable[SuiteView], options: ReportOptions) -> Document:
    """Return the documents of suites one after the other, with what is wrong with the first such.

    The hash of each covers those above it, too.
    """
    text, wrong = "", None
    for suite in suites:
        text += "\n" if text else ""
        document = document_of(view, suite.id, options, text)
        text += document.text
        wrong = wrong or document.problem
    return Document(text, wrong)


def write_report(view: RunView, out: TextIO, options: ReportOptions) -> KindlmError | None:
    """Write the documents of all suites; return what is wrong with the first such."""
    documents = documents_of(view, view.suites, options)
    out.write(documents.text)
    return documents.problem
