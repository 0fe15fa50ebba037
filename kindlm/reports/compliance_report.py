"""The report `compliance`: a document for each suite of a run, with its hash, also as PDF.

A PDF needs the extra `pdf`. The Markdown parser for it supports neither HTML nor images, so no text
becomes markup, and nothing is fetched or read from a file.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from kindlm.dataclass import dataclass, replace
from kindlm.errors import DOCS, Err, ErrorCode, KindlmError, Ok, Result, broken
from kindlm.history.rows import SuiteView
from kindlm.history.run_view import RunView
from kindlm.reports.compliance.compliance_facts import read_facts, template_of
from kindlm.reports.compliance.rendering import TemplateFailedError, render, render_apart
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import code, plain

if TYPE_CHECKING:
    from markdown_it.rules_inline import StateInline

SEPARATOR = "---\n"
"""The line that ends the part of a document that its hash covers."""

_BLANKS = re.compile(r"\n{3,}")


@dataclass(frozen=True, slots=True)
class Document:
    """The document of a suite. `problem` is that its template failed or its data were changed."""

    text: str
    problem: KindlmError | None = None


def write_document(
    facts: Mapping[str, Any], template: tuple[str, str] | None, above: str = ""
) -> Document:
    """Return the document of a suite: Markdown, a separator, and the SHA-256 of all above it.

    `template` is the file and the text of a user's template; if it fails, the document says so.
    If recorded data were changed, the document begins with a warning, whatever its template.
    `above` are the preceding documents in the same file.
    """
    if template is None:
        own = files("kindlm.reports.compliance").joinpath("templates/report.md").read_text("utf-8")
        return _sealed(render(own, facts), facts, above)
    file, source = template
    try:
        return _sealed(render_apart(source, facts), facts, above)
    except TemplateFailedError as error:
        failed = f"Its template {code(file)} failed: {plain(str(error))}."
        problem = KindlmError(
            ErrorCode.CONFIG_VALIDATION_ERROR,
            f"The template {file} of the compliance report failed: {error}.",
            "The run is recorded, with this template. Fix it, and run the tests again."
            f" What a template may hold: {DOCS}/how-to/compliance/",
        )
        text = f"# The report could not be written\n\n{failed}\n"
        return replace(_sealed(text, facts, above), problem=problem)


def _sealed(text: str, facts: Mapping[str, Any], above: str) -> Document:
    """Return the document: a text with its hash, and a warning if recorded data were changed."""
    events = [
        f"run {stream['run']}: {problem}"
        for stream in facts.get("audit", ())
        for problem in stream["problems"]
    ]
    wrong = [*events, *facts.get("changed_tables", ())]
    warning, changed = "", None
    if wrong:
        changes = "".join(f"- {plain(sentence, len(sentence))}\n" for sentence in wrong)
        way_out = "Restore it from a backup" if events else "Run `kindlm history rebuild`"
        warning = (
            "**NOT AS RECORDED.** The history that this document was read from was changed: it is"
            f" not evidence. {way_out}. Then make the document again.\n\n{changes}\n"
        )
        changed = broken(
            "The compliance report is not evidence: the history that it was read from was changed.",
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


def document_of(
    view: RunView, suite: SuiteView, options: ReportOptions, above: str = ""
) -> Document:
    """Return the document of a suite of a run."""
    facts = read_facts(view, suite, options.regression_threshold)
    return write_document(facts, template_of(view, suite), above)


def documents_of(view: RunView, suites: Iterable[SuiteView], options: ReportOptions) -> Document:
    """Return the documents of suites as one, with the first problem.

    The hash of a document also covers the documents above it.
    """
    text, wrong = "", None
    for suite in suites:
        text += "\n" if text else ""
        document = document_of(view, suite, options, text)
        text += document.text
        wrong = wrong or document.problem
    return Document(text, wrong)


def write_report(view: RunView, out: TextIO, options: ReportOptions) -> KindlmError | None:
    """Write the documents of all suites; return the first problem."""
    documents = documents_of(view, view.suites, options)
    out.write(documents.text)
    return documents.problem


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
_CODE = re.compile(r"<code>([^<]*)</code>")
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
    the tables do not fit a page, their rows become text. `made` is its date: UTC, ISO 8601.
    """
    required = require_pdf()
    if isinstance(required, Err):
        return required
    # These keep mentions in Markdown from becoming links.
    markdown = markdown.replace(_NO_WIDTH, "")
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


def _html(markdown: str, *, tables: bool) -> str:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).disable("image")
    parser.inline.ruler.before("html_inline", "code_in_html", _code_in_html)
    document = str((parser.enable("table") if tables else parser).render(markdown))
    # fpdf supports no markup in cells, and without padding puts rows on the line above them.
    padded = document.replace("<table>", f'<table cellpadding="{_PADDING_MM}">')
    return _CELL.sub(lambda cell: _cell(*cell.groups()), padded)


def _code_in_html(state: StateInline, silent: bool) -> bool:
    """Parse `<code>`, which `cell` writes for text with a bar; other HTML stays text."""
    found = _CODE.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    if not silent:
        state.push("code_inline", "code", 0).content = html.unescape(found[1])
    state.pos = found.end()
    return True


def _cell(name: str, style: str, content: str) -> str:
    align = "right" if "right" in style else "left"
    return f'<{name} align="{align}">{_MARKUP.sub("", content)}</{name}>'
