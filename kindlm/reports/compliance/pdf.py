"""The compliance document as PDF, for those who file documents. Needs the extra `pdf`.

The Markdown is read by a parser that takes neither HTML nor images: nothing of a text becomes
markup, and nothing is fetched or read from a file.
"""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, broken

if TYPE_CHECKING:
    from markdown_it.rules_inline import StateInline


_FONTS = (
    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf",
    "/usr/share/fonts/TTF/DejaVuSans.ttf",
    "/Library/Fonts/Arial Unicode.ttf",
    "/System/Library/Fonts/Supplemental/Arial Unicode.ttf",
)
"""Where systems keep a font that has more than Latin letters."""

_SIZE = 9
_PADDING_MM = 0.8
_BELOW_TEXT_MM = 2

_CELL = re.compile(r"<(td|th)\b([^>]*)>(.*?)</t[dh]>", re.DOTALL)
_CODE = re.compile(r"<code>([^<]*)</code>")
_MARKUP = re.compile(r"</?(?:code|strong|em|a)\b[^>]*>")
_NO_WIDTH = "\u200b"
_MISSING = "\N{REPLACEMENT CHARACTER}"


def require_pdf() -> Result[None]:
    """Return an error if the extra is not installed, or does not work."""
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

    Args:
        markdown: The document.
        made: When its run ended, UTC, ISO 8601: the PDF is dated so.

    Characters that the font does not have are shown as the replacement character, or as `?` where
    there is a font for Latin letters alone. A document whose
    tables no page holds has its rows as text. An error says that the extra is not installed, or
    that no PDF can be made of the document.
    """
    required = require_pdf()
    if isinstance(required, Err):
        return required
    # These keep services that show Markdown from mentioning people: nothing of the document.
    markdown = markdown.replace(_NO_WIDTH, "")
    failed: Exception | None = None
    for tables in (True, False):
        try:
            return Ok(_laid_out(markdown, made, tables=tables))
        # What it raises for tables that are too wide or too high, or for anything else, is not
        # written down anywhere; and a run is never lost for its report.
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
        # What the font does not have would be left out without a trace.
        added: Any = pdf.fonts["text"]
        known = added.cmap.keys() | map(ord, "\n\t")
        missing = set(map(ord, set(markdown))) - known
        markdown = markdown.translate(dict.fromkeys(missing, _MISSING))
    pdf.add_page()
    # Every head in black: a colour would seem to mean something.
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
        # The files of fonts; after an error nothing else closes them.
        for each in pdf.fonts.values():
            if close := getattr(each, "close", None):
                close()


def _html(markdown: str, *, tables: bool) -> str:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).disable("image")
    parser.inline.ruler.before("html_inline", "code_in_html", _code_in_html)
    document = str((parser.enable("table") if tables else parser).render(markdown))
    # The writer of PDF knows no markup inside of cells, and puts rows upon the line above them.
    padded = document.replace("<table>", f'<table cellpadding="{_PADDING_MM}">')
    return _CELL.sub(lambda cell: _cell(*cell.groups()), padded)


def _code_in_html(state: StateInline, silent: bool) -> bool:
    """Read `<code>`, in which tables have texts with bars; nothing else of HTML is read."""
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
