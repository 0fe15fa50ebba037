"""The report `compliance`: a document for each suite of a run, with its hash, also as PDF.

A PDF needs the extra `pdf`. The Markdown parser for it supports neither HTML nor images, so no text
becomes markup, and nothing is fetched or read from a file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, TextIO

from kindlm.dataclass import dataclass
from kindlm.errors import DOCS, Err, ErrorCode, KindlmError, Ok, Result, broken
from kindlm.history.rows import SuiteView
from kindlm.history.run_view import RunView
from kindlm.reports.compliance.compliance_facts import read_facts
from kindlm.reports.compliance.rendering import TemplateFailedError, render, render_apart
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import code, plain

SEPARATOR = "---\n"
"""The line that ends the part of a document that its hash covers."""

_BLANKS = re.compile(r"\n{3,}")


@dataclass(frozen=True, slots=True)
class Document:
    """A document. `problem` is that a template failed or recorded data were changed."""

    text: str
    problem: KindlmError | None = None


def hashed(contents: Iterable[Document]) -> Document:
    """Return the documents of suites as one, with the first problem.

    It is Markdown, a separator, and the SHA-256 of all above it.
    """
    contents = list(contents)
    text = "".join(f"{content.text}\n\n" for content in contents)
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
    end = (
        f"{SEPARATOR}\nSHA-256 of all above the line: `{digest}`\n\n"
        "Made from the history alone: the same history gives the same document.\n"
    )
    problems = (content.problem for content in contents if content.problem is not None)
    return Document(text + end, next(problems, None))


def content_of(view: RunView, suite: SuiteView, options: ReportOptions) -> Document:
    """Return the document of a suite without the hash.

    If recorded data were changed, it begins with a warning, whatever its template.
    """
    facts, template = read_facts(view, suite, options.regression_threshold)
    text, problem = _rendered(facts, template)
    events = [
        f"run {stream['run']}: {problem}"
        for stream in facts["audit"]
        for problem in stream["problems"]
    ]
    if wrong := [*events, *facts["changed_tables"]]:
        changes = "".join(f"- {plain(sentence, len(sentence))}\n" for sentence in wrong)
        way_out = "Restore it from a backup" if events else "Run `kindlm history rebuild`"
        changed = "was changed: it is not evidence."
        warning = f"**NOT AS RECORDED.** The history that this document was read from {changed}"
        text = f"{warning} {way_out}. Then make the document again.\n\n{changes}\n{text}"
        problem = broken(
            f"The history that the compliance report was read from {changed}",
            f"{way_out}. See what was changed: kindlm history verify",
        )
    return Document(_BLANKS.sub("\n\n", text).strip(), problem)


def _rendered(
    facts: Mapping[str, Any], template: tuple[str, str] | None
) -> tuple[str, KindlmError | None]:
    """Return the text for a suite by a user's template, or by that of kindlm, and its problem."""
    if template is None:
        own = files("kindlm.reports.compliance").joinpath("templates/report.md").read_text("utf-8")
        return render(own, facts), None
    file, source = template
    try:
        return render_apart(source, facts), None
    except TemplateFailedError as error:
        problem = KindlmError(
            ErrorCode.CONFIG_VALIDATION_ERROR,
            f"The template {file} of the compliance report failed: {error}.",
            "The run is recorded, with this template. Fix it, and run the tests again."
            f" What a template may hold: {DOCS}/how-to/compliance/",
        )
        failed = f"Its template {code(file)} failed: {plain(str(error))}."
        return f"# The report could not be written\n\n{failed}", problem


def write_report(view: RunView, out: TextIO, options: ReportOptions) -> KindlmError | None:
    """Write the documents of all suites; return the first problem."""
    document = hashed(content_of(view, suite, options) for suite in view.suites)
    out.write(document.text)
    return document.problem


_FONTS = (
    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf",
    "/usr/share/fonts/TTF/DejaVuSans.ttf",
    "/Library/Fonts/Arial Unicode.ttf",
    "/System/Library/Fonts/Supplemental/Arial Unicode.ttf",
)
"""Fonts of Linux and macOS with more than Latin letters."""

_SIZE = 9
_PADDING_MM = 0.8
_BELOW_TEXT_MM = 2

_CELL = re.compile(r"<(td|th)\b([^>]*)>(.*?)</t[dh]>", re.DOTALL)
_MARKUP = re.compile(r"</?(?:code|strong|em|a)\b[^>]*>")
_NO_WIDTH = "\u200b"
_MISSING = "\N{REPLACEMENT CHARACTER}"


def require_pdf() -> Result[None]:
    """Return an error if the extra `pdf` is not installed or does not work."""
    try:
        import fpdf  # noqa: F401
        import markdown_it  # noqa: F401
    except ImportError:
        message = "A PDF needs packages that are not installed."
        hint = "Install them: pip install 'kindlm[pdf]'"
        return Err(KindlmError(ErrorCode.CONFIG_VALIDATION_ERROR, message, hint))
    return Ok(None)


def pdf_of(markdown: str, made: str) -> Result[bytes]:
    """Return the PDF of a document; the same document gives the same bytes on the same system.

    Characters that the font lacks become the replacement character, or `?` with a Latin font. If
    a row of a table does not fit on a page, all rows become text. `made` is its date: UTC, ISO
    8601.
    """
    failed: Exception | None = None
    for tables in (True, False):
        try:
            return Ok(_laid_out(markdown, made, tables=tables))
        # Exceptions of fpdf are undocumented, and a report must not make a run fail.
        except Exception as error:  # noqa: BLE001
            failed = error
    message = f"The compliance report could not be made a PDF: {failed}."
    return Err(broken(message, "Take it as Markdown: kindlm report --format compliance -o FILE"))


def _laid_out(markdown: str, made: str, *, tables: bool) -> bytes:
    from fpdf import FPDF, FontFace, TextStyle

    # These keep mentions in Markdown from becoming links.
    markdown = markdown.replace(_NO_WIDTH, "")
    pdf = FPDF(format="A4")
    pdf.set_creation_date(datetime.fromisoformat(made).astimezone(UTC))
    pdf.set_title("Test evidence")
    font = next((file for file in _FONTS if Path(file).is_file()), None)
    if font is None:
        markdown = markdown.encode("latin-1", "replace").decode("latin-1")
        pdf.set_font("Helvetica", size=_SIZE)
    else:
        for style in ("", "B", "I", "BI"):
            pdf.add_font("text", style, font)
        pdf.set_font("text", size=_SIZE)
        # fpdf would leave out characters that the font lacks.
        added: Any = pdf.fonts["text"]
        known = added.cmap.keys() | map(ord, "\n\t")
        missing = set(map(ord, set(markdown))) - known
        markdown = markdown.translate(dict.fromkeys(missing, _MISSING))
    pdf.add_page()
    # By default, headings are coloured.
    styles: dict[str, Any] = {
        "code": FontFace(family="text" if font else "Courier"),
        "h1": FontFace(color=0, size_pt=16),
        "h2": FontFace(color=0, size_pt=12),
        "h3": FontFace(color=0, size_pt=10),
        "p": TextStyle(b_margin=_BELOW_TEXT_MM),
    }
    try:
        pdf.write_html(_html(markdown, tables=tables), tag_styles=styles)
        return bytes(pdf.output())
    finally:
        # After an error, nothing else closes the font files.
        for opened in pdf.fonts.values():
            if close := getattr(opened, "close", None):
                close()


def _html(markdown: str, *, tables: bool = True) -> str:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).disable("image")
    document = str((parser.enable("table") if tables else parser).render(markdown))
    # fpdf supports no markup in cells, and without padding puts rows on the line above them.
    padded = document.replace("<table>", f'<table cellpadding="{_PADDING_MM}">')

    def cell(found: re.Match[str]) -> str:
        name, style, content = found.groups()
        align = "right" if "right" in style else "left"
        return f'<{name} align="{align}">{_MARKUP.sub("", content)}</{name}>'

    return _CELL.sub(cell, padded)
